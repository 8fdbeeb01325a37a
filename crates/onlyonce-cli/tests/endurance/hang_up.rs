//! A client that hangs up changes nothing: what it began ends, is stored once, and is replayed.

use rusqlite::Connection;
use tempfile::TempDir;

use crate::caller::{Caller, Leave, retry_to_the_end};
use crate::gateway::{Gateway, store};
use crate::until;
use crate::upstream::{GATED, LARGE, LARGE_BYTES, QUICK, Upstream};

const TIMES: usize = 6;

struct Lab {
    upstream: Upstream,
    gateway: Gateway,
    folder: TempDir,
}

impl Lab {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let upstream = Upstream::start().await;
        let gateway = Gateway::start(folder.path(), upstream.address).await;
        Self { upstream, gateway, folder }
    }

    /// While this is held, the gateway's store commits nothing.
    fn hold_commits(&self) -> Connection {
        let db = Connection::open(store(self.folder.path())).unwrap();
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        db
    }

    /// Executed exactly once, without any further request, and replayed from then on.
    async fn ended_by_itself(&self, path: &str, key: &str) {
        until("the answer", || self.upstream.has_answered(key)).await;
        let answer = retry_to_the_end(&self.gateway, path, key).await;
        let again = retry_to_the_end(&self.gateway, path, key).await;
        let executions = self.upstream.executions(key);
        for answer in [answer, again] {
            assert_eq!(answer.status, 201, "{key}: {:?}", answer.problem());
            assert!(answer.is_replay(), "{key}");
            assert!(executions == [answer.body], "{key}");
        }
    }
}

/// The operations of one test: a key, and how its client leaves.
fn operations() -> impl Iterator<Item = (String, Leave)> {
    (0..TIMES).map(|n| {
        let how = [Leave::Close, Leave::Reset][n % 2];
        (format!("operation-{n:016x}-{how:?}"), how)
    })
}

// R61, R90; threat A12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_before_the_claim_commits_changes_nothing() {
    let lab = Lab::new().await;
    for (key, how) in operations() {
        let held = lab.hold_commits();
        let caller = Caller::send(&lab.gateway, QUICK, &key).await;
        caller.hang_up(&lab.gateway, how).await;
        assert_eq!(lab.upstream.executions(&key).len(), 0, "sent unclaimed");
        held.execute_batch("ROLLBACK").unwrap();
        lab.ended_by_itself(QUICK, &key).await;
    }
}

// R90; threat A12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_its_operation_executes_changes_nothing() {
    let lab = Lab::new().await;
    for (key, how) in operations() {
        lab.upstream.close_gate();
        let caller = Caller::send(&lab.gateway, GATED, &key).await;
        until("the execution", || lab.upstream.executing() == 1).await;
        caller.hang_up(&lab.gateway, how).await;
        assert_eq!(lab.upstream.executing(), 1, "the upstream was left too");
        lab.upstream.open_gate();
        lab.ended_by_itself(GATED, &key).await;
    }
}

// R80, R90; threat A12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_its_answer_is_stored_changes_nothing() {
    let lab = Lab::new().await;
    for (key, how) in operations() {
        lab.upstream.close_gate();
        let caller = Caller::send(&lab.gateway, GATED, &key).await;
        until("the execution", || lab.upstream.executing() == 1).await;
        let held = lab.hold_commits();
        lab.upstream.open_gate();
        until("the last byte", || lab.upstream.has_answered(&key)).await;
        caller.hang_up(&lab.gateway, how).await;
        held.execute_batch("ROLLBACK").unwrap();
        lab.ended_by_itself(GATED, &key).await;
    }
}

// R80, R90; threats A8, A12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_in_the_middle_of_its_answer_changes_nothing() {
    let lab = Lab::new().await;
    for (key, how) in operations() {
        let mut caller = Caller::send(&lab.gateway, LARGE, &key).await;
        caller.read(LARGE_BYTES / 2).await;
        caller.hang_up(&lab.gateway, how).await;
        lab.ended_by_itself(LARGE, &key).await;
    }
}
