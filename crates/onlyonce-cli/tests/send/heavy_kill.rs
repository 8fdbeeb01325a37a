//! `kill -9` of a process that uses the journal, at random moments, each followed by a resume.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use onlyonce::client::Journal;
use onlyonce::key::Key;
use proof::tier::tiered;

use crate::lab::{Gateway, Service, onlyonce, send};

// R149, R151; case CLI-07; threat J1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(
    clippy::disallowed_methods,
    reason = "how long a process takes is measured on the real clock"
)]
async fn killed_at_random_moments_each_operation_of_the_journal_is_executed_once() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let gateway = Gateway::start(folder.path(), service.address);
    let url = format!("http://{}/charges", gateway.address);
    let path = folder.path().join("journal");
    let file = path.to_str().unwrap();
    let life = || {
        let began = Instant::now();
        assert_eq!(send(&["POST", &url, "--json", "1", "--journal", file]).code, 0);
        began.elapsed()
    };
    let shortest = (0..LIVES).map(|_| life()).min().unwrap();

    let (mut held, mut unbegun, mut settled) = (0, 0, 0);
    for n in 0..tiered(100) {
        let order = n.to_string();
        let key = Key::derive(["order", &order]);
        let arguments = [
            "send",
            "POST",
            &url,
            "--json",
            "1",
            "--journal",
            file,
            "--derive",
            "order",
            "--derive",
            &order,
        ];
        let mut child = onlyonce(&arguments).spawn().unwrap();
        // Random moments, not waits for anything: every other one of its whole life, the others of the part
        // in which it writes, sends and waits.
        let part = if n % 2 == 0 { shortest } else { until_begun(&mut child) };
        tokio::time::sleep(part.mul_f64(fastrand::f64())).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let journal = Journal::open(&path).await.unwrap();
        let open = journal.entries().await.unwrap();
        let is_held = open.iter().any(|entry| entry.key == key);
        let resumed = send(&["--resume", "--journal", file]);
        assert_eq!(resumed.code, 0, "{}", resumed.stderr);
        assert!(journal.entries().await.unwrap().is_empty(), "{}", resumed.stderr);
        let executions = service.executions(key.as_str());
        match (is_held, executions) {
            (true, 1) => held += 1,
            (false, 0) => unbegun += 1,
            (false, 1) => settled += 1,
            _ => panic!("executed {executions} times; held in the journal: {is_held}"),
        }
    }
    println!("{held} held and resumed, {unbegun} not begun, {settled} settled before the kill");
    assert!(held > 0, "no kill hit an operation that was on its way");
    drop(gateway);
}

/// Returns when the process says its key, and how long it may live from then on.
fn until_begun(child: &mut Child) -> Duration {
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("key"), "{line}");
    Duration::from_millis(20)
}

// The journal outlives also the gateway: what never got through is sent when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_got_through_is_sent_by_a_later_resume() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let url = format!("http://{}/charges", Gateway::start(folder.path(), service.address).address);
    let file = folder.path().join("journal");
    let file = file.to_str().unwrap();
    let key = Key::derive(["order", "1"]);
    let charge = ["POST", &url, "--json", "1", "--journal", file, "--key", key.as_str()];
    let failed = send(&[&charge[..], &["--max-attempts", "1"]].concat());
    assert_eq!(failed.code, 3, "{}", failed.stderr);
    assert_eq!(service.executions(key.as_str()), 0);
    // No gateway listens there any more: it is left for later.
    let resumed = send(&["--resume", "--journal", file, "--max-attempts", "1"]);
    assert_eq!(resumed.code, 3, "{}", resumed.stderr);
    let journal = Journal::open(file).await.unwrap();
    assert_eq!(journal.entries().await.unwrap().len(), 1);
    let forgot = send(&["--forget", key.as_str(), "--journal", file]);
    assert_eq!((forgot.code, journal.entries().await.unwrap().len()), (0, 0));
}

/// How often a life is measured, so that most kills come before its end.
const LIVES: usize = 5;
