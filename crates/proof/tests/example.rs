//! The axum example as a user runs it: its own process, a real socket, a restart in between.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proof::client::{self, Answer};

const KEY: &str = "order-4711-first-try";

struct Example {
    child: Child,
    address: SocketAddr,
}

impl Example {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_axum-example"));
        command.arg("127.0.0.1:0").current_dir(folder).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, address }
    }

    async fn send(&self, path: &str, key: &str, body: &str) -> Answer {
        client::post(self.address, path, key, body).await.unwrap()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn first_replay_mismatch_and_missing_key_and_the_same_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let example = Example::start(folder.path());
    let first = example.send("/charges", KEY, "a").await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (200, false));
    let again = example.send("/charges", KEY, "a").await;
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    assert_eq!(again.headers.get_all("date").iter().count(), 1);
    let other = example.send("/charges", KEY, "b").await;
    assert_eq!(
        (other.status.as_u16(), other.problem().as_deref()),
        (422, Some("idempotency_key_reused"))
    );
    let short = example.send("/charges", "too-short", "a").await;
    assert_eq!(
        (short.status.as_u16(), short.problem().as_deref()),
        (400, Some("idempotency_key_invalid"))
    );
    let missing = client::post_without_key(example.address, "/charges", "a").await.unwrap();
    assert_eq!(
        (missing.status.as_u16(), missing.problem().as_deref()),
        (400, Some("idempotency_key_missing"))
    );
    drop(example);
    let example = Example::start(folder.path());
    let after_restart = example.send("/charges", KEY, "a").await;
    assert_eq!((after_restart.is_replay(), &after_restart.body), (true, &first.body));
    assert_eq!(example.send("/charges", KEY, "b").await.status.as_u16(), 422);
}

#[tokio::test]
async fn a_duplicate_in_flight_gets_409_or_waits_as_the_route_says() {
    let folder = tempfile::tempdir().unwrap();
    let example = Example::start(folder.path());
    for path in ["/charges", "/orders"] {
        let both = tokio::join!(example.send(path, KEY, "a"), example.send(path, KEY, "a"));
        let is_first = |answer: &Answer| answer.status.as_u16() == 200 && !answer.is_replay();
        let (first, duplicate) = if is_first(&both.0) { both } else { (both.1, both.0) };
        assert!(is_first(&first), "{first:?}");
        match path {
            "/charges" => {
                assert_eq!(duplicate.problem().as_deref(), Some("idempotency_in_progress"));
                assert_eq!(duplicate.headers["retry-after"], "1");
            }
            _ => assert_eq!((duplicate.is_replay(), duplicate.body), (true, first.body)),
        }
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_finds_its_answer_when_it_asks_again() {
    let folder = tempfile::tempdir().unwrap();
    let example = Example::start(folder.path());
    let address = example.address;
    let hangs_up = client::post(address, "/orders", KEY, "a");
    let hung_up = tokio::time::timeout(Duration::from_millis(200), hangs_up).await;
    assert!(hung_up.is_err(), "it hung up while the bank took its time");
    let answer = example.send("/orders", KEY, "a").await;
    assert_eq!((answer.status.as_u16(), answer.is_replay()), (200, true));
}
