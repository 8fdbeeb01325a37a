//! What every peer guards: a charge that is one line of a file. Usage of each server: PORT FILE [REDIS]

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

/// The words of the command line.
pub fn arguments() -> (u16, String, String) {
    let mut words = std::env::args().skip(1);
    let port = words.next().and_then(|port| port.parse().ok()).expect("usage: PORT FILE [REDIS]");
    let file = words.next().expect("usage: PORT FILE [REDIS]");
    (port, file, words.next().unwrap_or_default())
}

/// Charges: half of its time, the line of the file, the other half, an answer that no second execution repeats.
/// `fail` in the query or the body: `before` or `after` the effect is a 500, `decline` is a 402.
pub async fn charge(file: &str, query: &str, body: &[u8]) -> (u16, String) {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let fail = query.strip_prefix("fail=").or(body["fail"].as_str()).unwrap_or_default();
    let half = Duration::from_millis(body["slow_ms"].as_u64().unwrap_or(WORK_MS) / 2);
    tokio::time::sleep(half).await;
    match fail {
        "before" => return (500, json!({"error": "failed before the effect"}).to_string()),
        "decline" => return (402, json!({"error": "declined", "id": id()}).to_string()),
        _ => execute(file, body["marker"].as_str().unwrap_or("none")),
    }
    tokio::time::sleep(half).await;
    match fail {
        "after" => (500, json!({"error": "failed after the effect"}).to_string()),
        _ => (
            201,
            json!({"id": id(), "marker": body["marker"], "amount": body["amount"]}).to_string(),
        ),
    }
}

fn execute(file: &str, marker: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .expect("the file of executions opens");
    file.write_all(format!("{marker}\n").as_bytes()).expect("an execution is written");
}

/// How often the marker of `marker=M` was executed.
pub fn count(file: &str, query: &str) -> String {
    let marker = query.strip_prefix("marker=").unwrap_or_default();
    let lines = std::fs::read_to_string(file).unwrap_or_default();
    lines.lines().filter(|line| *line == marker).count().to_string()
}

fn id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("ch_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

const WORK_MS: u64 = 40;
