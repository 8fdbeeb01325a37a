//! `onlyonce torture` finds the defects of the sample layers that can be seen from outside, within a minute each.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use proof::samples::{LayerName, Settings, serve};
use serde_json::Value;
use servers::{Postgres, Redis};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

/// A sample on loopback, and its files. It ends with the test.
struct Sample {
    address: SocketAddr,
    _folder: TempDir,
}

impl Sample {
    async fn start(layer: LayerName, adjust: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(layer, folder.path().join("executions"));
        settings.sqlite = folder.path().join("sample.db");
        adjust(&mut settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            if let Err(error) = serve(listener, settings).await {
                panic!("the sample did not start: {error}");
            }
        });
        Self { address, _folder: folder }
    }

    /// Attacks it by these programs; the properties that torture calls violated.
    async fn violated(&self, programs: &str, fail: &str) -> BTreeSet<String> {
        let address = self.address;
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command
            .args(["torture", &format!("http://{address}/charges"), "--only", programs])
            .args(["--count-url", &format!("http://{address}/count?marker={{marker}}")])
            .args(["--fail-json", &format!("{{\"marker\":\"{{marker}}\",\"fail\":\"{fail}\"}}")])
            .args(["--auth-a", "X-Api-Key: a", "--auth-b", "X-Api-Key: b"])
            .args(["--rate", "500", "--seed", "18", "--quiet", "--format", "json"])
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(FOUND_WITHIN, command.output()).await;
        let output = output.expect("torture ends within a minute").unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{report:#}");
        assert_eq!(report["verdict"], "violated");
        let findings = report["findings"].as_array().unwrap();
        println!(
            "{programs}: {}",
            findings.iter().map(|f| f["summary"].to_string()).collect::<Vec<_>>().join("; ")
        );
        findings.iter().map(|finding| finding["property"].as_str().unwrap().to_owned()).collect()
    }
}

fn assert_found(violated: &BTreeSet<String>, wanted: &[&str]) {
    for property in wanted {
        assert!(violated.contains(*property), "{property} is not among {violated:?}");
    }
}

/// The articles' hourly and daily work, at a pace that shows.
fn hurried(settings: &mut Settings) {
    settings.work = Duration::from_millis(400);
    settings.sweep_every = Duration::from_millis(50);
    settings.stale_after = Duration::from_millis(150);
}

const FOUND_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reaper_the_empty_replay_and_the_shared_keys_of_sample_a_are_found() {
    let (redis, postgres) = (Redis::start(&[]), Postgres::start());
    let sample = Sample::start(LayerName::A, |settings| {
        (settings.redis, settings.postgres) = (redis.url(), postgres.database());
        hurried(settings);
    })
    .await;
    let violated = sample.violated("T2,T4,T8", "after").await;
    assert_found(&violated, &["at-most-once", "same-answer", "isolation"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clean_up_of_live_rows_of_sample_b_is_found() {
    let postgres = Postgres::start();
    let sample = Sample::start(LayerName::B, |settings| {
        settings.postgres = postgres.database();
        hurried(settings);
    })
    .await;
    assert_found(&sample.violated("T1", "after").await, &["at-most-once"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_that_sample_c_deletes_after_an_exception_is_found() {
    let redis = Redis::start(&[]);
    let sample = Sample::start(LayerName::C, |settings| settings.redis = redis.url()).await;
    assert_found(&sample.violated("T1,T9", "after").await, &["at-most-once"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_declined_charge_that_sample_d_replays_as_200_is_found() {
    let sample = Sample::start(LayerName::D, |_| {}).await;
    let violated = sample.violated("T1,T8,T9", "decline").await;
    assert_found(&violated, &["same-answer", "isolation", "errors-stay"]);
}
