//! Many nodes on one Redis.

use std::time::Duration;

use onlyonce::record::{StateKind, StateSet};
use onlyonce::store::redis::{RedisOptions, RedisStore};
use onlyonce::store::{Guard, Maintain, Next, Scan, Store, Watch};
use servers::Redis;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::lab::{completed, done, draft, id, open, raw, settled, until, won};

// R48, threat B12
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_race_never_both_win() {
    let server = Redis::start(&[]);
    let nodes = [open(&server).await, open(&server).await];
    for number in 0..300 {
        let mut racers = JoinSet::new();
        for node in nodes.clone() {
            racers.spawn(async move { node.claim(draft(number)).await.unwrap() });
        }
        let seen = racers.join_all().await;
        assert_eq!(seen.iter().filter(|seen| seen.mine).count(), 1, "{seen:?}");
        assert_eq!(seen[0].record, seen[1].record);
    }
}

#[tokio::test]
async fn stores_with_other_prefixes_do_not_see_each_other() {
    let server = Redis::start(&[]);
    let with = |prefix: &'static str| {
        let url = server.url();
        async move {
            RedisStore::open_with(&url, RedisOptions::new().with_prefix(prefix)).await.unwrap()
        }
    };
    let (one, two) = (with("shop").await, with("shop:2").await);
    let first = settled(&one, &draft(1), "one").await;
    let kept = settled(&two, &draft(1), "two").await;
    won(&two, &draft(2)).await;
    assert_eq!(one.load(id(2)).await.unwrap().record, None);
    assert_eq!((count(&one, &StateKind::ALL).await, count(&two, &StateKind::ALL).await), (1, 2));
    let running = [StateKind::Running];
    assert_eq!((count(&one, &running).await, count(&two, &running).await), (0, 1));
    let guard = Guard::Unchanged(first.revision());
    one.swap(id(1), guard, Next::Absent).await.unwrap();
    assert_eq!(one.load(id(1)).await.unwrap().record, None);
    assert_eq!(two.load(id(1)).await.unwrap().record, Some(kept));
}

async fn count(store: &RedisStore, states: &[StateKind]) -> usize {
    let query = Scan { states: StateSet::of(states), after: None, limit: 100 };
    store.scan(query).await.unwrap().records.len()
}

/// Both protocols of Redis, on all connections of a store and of a filter.
#[tokio::test]
async fn the_newer_protocol_does_as_well() {
    let server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let url = format!("{}?protocol=resp3", server.url());
    let (newer, older) = (RedisStore::open(&url).await.unwrap(), open(&server).await);
    assert_eq!(newer.promise(), older.promise());
    assert!(newer.promise().is_durable());
    let record = settled(&newer, &draft(1), "kept").await;
    assert_eq!(older.load(id(1)).await.unwrap().record, Some(record));
    let running = draft(2);
    won(&older, &running).await;
    assert_eq!(newer.load(id(3)).await.unwrap().record, None);
    assert_eq!(count(&newer, &StateKind::ALL).await, 2);
    assert_eq!(newer.check_value("name", None, Some("text")).await.unwrap(), Some("text".into()));
    assert_eq!(newer.check_value("other", None, None).await.unwrap(), None);
    let woken = listening(&newer, running.id, async || {
        done(&older, &running, completed("kept")).await;
    });
    assert!(woken.await);
}

#[tokio::test]
async fn a_write_of_one_node_wakes_the_waiters_of_another() {
    let server = Redis::start(&[]);
    let (one, two) = (open(&server).await, open(&server).await);
    for number in 0..20 {
        let owned = draft(number);
        won(&one, &owned).await;
        let woken = listening(&two, owned.id, async || done(&one, &owned, completed("kept")).await);
        assert!(woken.await, "operation {number}");
    }
}

/// The first of them may come before the other node has subscribed: then it is woken by the subscription.
async fn listening(
    two: &RedisStore,
    id: onlyonce::scope::OperationId,
    write: impl AsyncFnOnce(),
) -> bool {
    let changed = two.changed(id);
    write().await;
    timeout(WAKE_WAIT, changed).await.is_ok()
}

#[tokio::test]
async fn after_a_gap_everyone_is_woken() {
    let mut server = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let store = open(&server).await;
    let is_heard = async || {
        let listeners = redis::cmd("PUBSUB").arg("NUMSUB").arg("oo:changed").to_owned();
        let listeners: (String, u32) = listeners.query(&mut raw(&server)).unwrap();
        listeners.1 == 1
    };
    until(is_heard).await;
    won(&store, &draft(1)).await;
    let changed = store.changed(id(1));
    server.kill();
    server.start_again();
    assert!(timeout(WAKE_WAIT, changed).await.is_ok(), "nobody knows what was missed");
}

const WAKE_WAIT: Duration = Duration::from_secs(5);
