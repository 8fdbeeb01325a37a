//! Servers that are killed in mid-load, and replaced.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce::record::{StateKind, Token};
use onlyonce::scope::OperationId;
use onlyonce::store::Store;
use onlyonce::store::postgres::PostgresStore;
use servers::Postgres;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::lab::{completed, draft, open, settle};

/// What was answered: the token, and whether it was settled.
type Answered = HashMap<OperationId, (Token, bool)>;

/// Claims and settles on many lanes until told to stop; a call without an answer ends its operation.
struct Load {
    lanes: JoinSet<Answered>,
    stop: Arc<AtomicBool>,
}

impl Load {
    fn start(store: &PostgresStore) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut lanes = JoinSet::new();
        for lane in 0..16 {
            lanes.spawn(lane_of(store.clone(), lane, stop.clone()));
        }
        Self { lanes, stop }
    }

    async fn end(self) -> Answered {
        self.stop.store(true, Ordering::Relaxed);
        self.lanes.join_all().await.into_iter().flatten().collect()
    }
}

async fn lane_of(store: PostgresStore, lane: u64, stop: Arc<AtomicBool>) -> Answered {
    let mut answered = Answered::new();
    let mut number = lane;
    while !stop.load(Ordering::Relaxed) {
        number += 16;
        let draft = draft(number);
        match store.claim(draft.clone()).await {
            Ok(seen) if seen.mine => {
                let is_settled = settle(&store, &draft).await.is_ok();
                answered.insert(draft.id, (draft.token, is_settled));
            }
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    answered
}

/// Every answer that was given is still true.
async fn check(store: &PostgresStore, answered: &Answered) {
    assert!(answered.len() > 50, "there was a load: {}", answered.len());
    for (id, (token, is_settled)) in answered {
        let record = store.load(*id).await.unwrap().record.expect("what was answered is there");
        assert_eq!(record.token, *token);
        assert!(!is_settled || record.state.kind() == StateKind::Completed);
    }
}

async fn back(store: &PostgresStore) {
    let answers = async {
        while store.load(draft(0).id).await.is_err() || store.claim(draft(0)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), answers).await.expect("it comes back by itself");
}

async fn some_rows(postgres: &Postgres, url: &str, rows: i64) {
    while postgres.sql(url, "SELECT count(*) FROM onlyonce.record").parse::<i64>().unwrap() < rows {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// threat C2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_before_the_server_was_killed_is_there_after_it() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let store = open(&url).await;
    let load = Load::start(&store);
    for kill in 1..=3 {
        some_rows(&postgres, &url, 400 * kill).await;
        postgres.kill();
        postgres.start_again();
        back(&store).await;
    }
    let answered = load.end().await;
    check(&store, &answered).await;
}

// threats C3, C4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_on_the_synchronous_standby_that_takes_over() {
    let mut primary = Postgres::start();
    let url = primary.database();
    let name = url.rsplit('/').next().unwrap().to_owned();
    let standby = primary.standby("second");
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    let is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while primary.sql("postgres", is_sync) != "1" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), standby.port());
    let store =
        open(&format!("postgres://postgres@{hosts}/{name}?target_session_attrs=read-write")).await;
    assert!(store.warnings().is_empty(), "{:?}", store.warnings());
    let load = Load::start(&store);
    some_rows(&primary, &url, 400).await;
    primary.kill();
    standby.promote();
    back(&store).await;
    let answered = load.end().await;
    check(&store, &answered).await;
    completed(&store, &draft(1 << 40)).await;
}
