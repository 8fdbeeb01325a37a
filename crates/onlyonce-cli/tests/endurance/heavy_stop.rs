//! Stops at any moment, under clients that leave at any moment: nothing is left unknown that could end.

use std::path::Path;
use std::time::Duration;

use proof::client::{self, Answer};
use proof::tier::tiered;
use rusqlite::Connection;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::caller::{Caller, Leave};
use crate::gateway::{Gateway, store};
use crate::upstream::{GATED, QUICK, Upstream};
use crate::{BODY, until, within};

const CLIENTS: usize = 40;
const STOPS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_clients_that_leave_loses_no_operation_that_ends_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let mut gateway = Gateway::start(folder.path(), upstream.address).await;
    for round in 0..tiered(STOPS) {
        let keys: Vec<_> = (0..CLIENTS).map(|n| format!("operation-{round:08x}-{n:08x}")).collect();
        let mut clients = JoinSet::new();
        for key in keys.clone() {
            clients.spawn(send_and_leave(gateway.address, key));
        }
        sleep(Duration::from_millis(fastrand::u64(0..30))).await;
        gateway.terminate();
        clients.join_all().await;
        assert_eq!(gateway.ended().await.code(), Some(0));
        let told = gateway.errors();
        assert!(!told.contains("had not ended") && told.ends_with("onlyonce: stopped\n"), "{told}");
        gateway = Gateway::start(folder.path(), upstream.address).await;
        for key in &keys {
            let executed_before = !upstream.executions(key).is_empty();
            let retry = post(&gateway, QUICK, key).await;
            assert_eq!(retry.status, 201, "{key}: {:?}", retry.problem());
            assert_eq!(retry.is_replay(), executed_before, "{key}");
            assert_eq!(upstream.executions(key), [retry.body], "{key}");
        }
    }
}

/// Sends a request, or some of it, and goes: at once, or after a moment, or with the answer.
async fn send_and_leave(gateway: std::net::SocketAddr, key: String) {
    let Ok(mut stream) = TcpStream::connect(gateway).await else { return };
    let length = BODY.len();
    let request = format!(
        "POST {QUICK} HTTP/1.1\r\nHost: {gateway}\r\nX-Api-Key: proof\r\nIdempotency-Key: {key}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{BODY}"
    );
    let cut = [request.len(), request.len(), request.len() - 3][fastrand::usize(..3)];
    // A gateway that stops may close a connection before it has read anything.
    let _ = stream.write_all(&request.as_bytes()[..cut]).await;
    sleep(Duration::from_millis(fastrand::u64(0..40))).await;
    if fastrand::bool() {
        let _ = stream.set_zero_linger();
    }
}

/// Its client has left, its answer has come, and only the store is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_a_store_that_is_slow_to_take_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start().await;
    let mut gateway = Gateway::start(folder.path(), upstream.address).await;
    let caller = Caller::send(&gateway, GATED, "operation").await;
    until("the execution", || upstream.executing() == 1).await;
    let held = hold_commits(folder.path());
    upstream.open_gate();
    until("the last byte", || upstream.has_answered("operation")).await;
    caller.hang_up(&gateway, Leave::Reset).await;
    gateway.terminate();
    sleep(Duration::from_secs(3)).await;
    assert!(!gateway.has_ended(), "{}", gateway.errors());
    held.execute_batch("ROLLBACK").unwrap();
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert!(!gateway.errors().contains("had not ended"), "{}", gateway.errors());
    let gateway = Gateway::start(folder.path(), upstream.address).await;
    assert!(post(&gateway, GATED, "operation").await.is_replay());
    assert_eq!(upstream.executions("operation").len(), 1);
}

/// While this is held, the gateway's store commits nothing.
fn hold_commits(folder: &Path) -> Connection {
    let db = Connection::open(store(folder)).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db
}

async fn post(gateway: &Gateway, path: &str, key: &str) -> Answer {
    within("an answer", client::post(gateway.address, path, key, BODY)).await.unwrap()
}
