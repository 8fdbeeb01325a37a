//! A service that is killed with SIGKILL at each point of an operation, and a client that retries.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use onlyonce::transaction::{Begun, Reply, Transactions};
use sqlx::PgPool;

use crate::lab::{CHARGE, Lab, charge, created, pool, tiered};

// R125, R126, R136
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_killed_at_any_point_charges_once_and_sends_one_message() {
    let lab = Lab::start().await;
    let pool = lab.pool(2).await;
    let cycles = tiered(200).max(POINTS.len() * 4);
    for cycle in 0..cycles {
        let (key, point) = (format!("k{cycle}"), POINTS[cycle % POINTS.len()]);
        kill_at(&lab, &key, point);
        let before = lab.charges();
        let expected = cycle + usize::from(point == AFTER_COMMIT);
        assert_eq!(before, expected.to_string(), "killed at {point:?}");
        assert_eq!(retried(&pool, &key).await, created());
        assert_eq!(retried(&pool, &key).await, created(), "the answer stays what it was");
        assert_eq!(lab.charges(), (cycle + 1).to_string(), "killed at {point:?}");
    }
    let messages = "SELECT count(*), count(DISTINCT operation) FROM onlyonce.outbox";
    assert_eq!(lab.sql(messages), format!("{cycles}|{cycles}"));
    println!("{cycles} kills, at least {} at each of {POINTS:?}", cycles / POINTS.len());
}

const AFTER_COMMIT: &str = "after the commit";
const POINTS: [&str; 5] =
    ["before the claim", "after the claim", "after the work", "after the message", AFTER_COMMIT];

/// Starts a process that does the operation up to `point`, and kills it there.
fn kill_at(lab: &Lab, key: &str, point: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "killed::child_that_charges"])
        .envs([(URL, lab.url.as_str()), (KEY, key), (POINT, point)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(REACHED)), "{point:?} was not reached");
    child.kill().unwrap();
    child.wait().unwrap();
    // The server notices that the client is gone when its next read fails, and rolls back.
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'killed'";
    let is_gone = (0..LOOKS_MAX).any(|_| lab.sql(gone) == "t");
    assert!(is_gone, "the session of a killed process stays");
}

/// What a client gets that retries until the outcome is known.
async fn retried(pool: &PgPool, key: &str) -> Reply {
    do_up_to(pool, key, "").await
}

async fn do_up_to(pool: &PgPool, key: &str, point: &str) -> Reply {
    reached(POINTS[0], point);
    let mut tx = match Transactions::new().begin(pool, &charge(key)).await.unwrap() {
        Begun::Mine(tx) => tx,
        Begun::Replay(reply) => return reply,
        other => panic!("nobody else is at it: {other:?}"),
    };
    reached(POINTS[1], point);
    sqlx::query(CHARGE).execute(&mut *tx).await.unwrap();
    reached(POINTS[2], point);
    tx.outbox("charges", Some("acct_1"), b"charged").await.unwrap();
    reached(POINTS[3], point);
    let reply = tx.complete(created()).await.unwrap();
    reached(AFTER_COMMIT, point);
    reply
}

/// Stops here for good if this is the point.
fn reached(here: &str, point: &str) {
    if here == point {
        println!("{REACHED}");
        loop {
            std::thread::park();
        }
    }
}

#[tokio::test]
#[ignore = "a child of the test above"]
async fn child_that_charges() {
    let [url, key, point] = [URL, KEY, POINT].map(|name| std::env::var(name).unwrap());
    let pool = pool(&format!("{url}?application_name=killed"), 1).await;
    do_up_to(&pool, &key, &point).await;
}

const LOOKS_MAX: usize = 1_000;
const URL: &str = "ONLYONCE_TEST_URL";
const KEY: &str = "ONLYONCE_TEST_KEY";
const POINT: &str = "ONLYONCE_TEST_POINT";
const REACHED: &str = "the point is reached";
