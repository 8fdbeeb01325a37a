//! A Redis whose clock somebody sets.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::record::StateKind;
use onlyonce::scope::Principal;
use onlyonce::store::{Draft, Lease, Next, Store, Swap};
use onlyonce::{Once, Operation, Outcome, Policy};
use servers::Redis;
use tokio::sync::oneshot;

use crate::lab::{done, draft, id, open, settled, until, won, write};

/// The leases that were given before end an hour later by the new clock. The reaper does not wait for that.
// threat B7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_goes_on_when_the_clock_is_set_back_and_reaps_what_a_dead_owner_left() {
    let server = Redis::start_with_clock(&[]);
    let store = open(&server).await;
    let once = Arc::new(Once::new(store.clone()));
    assert_eq!(once.run(operation("a"), async |_| Ok(1)).await.unwrap(), Outcome::Fresh(1));
    let (finish, finished) = oneshot::channel::<()>();
    let (begin, begun) = oneshot::channel();
    let owner = once.clone();
    let alive = tokio::spawn(async move {
        let work = move |_| async move {
            begin.send(()).unwrap();
            finished.await.unwrap();
            Ok(2)
        };
        owner.run(operation("alive"), work).await
    });
    begun.await.unwrap();
    let dead = Draft { lease: Lease::new(LEASE), ..draft(1) };
    won(&store, &dead).await;

    server.set_clock_ahead(-HOUR);
    assert_eq!(once.run(operation("a"), async |_| Ok(9)).await.unwrap(), Outcome::Replayed(1));
    assert_eq!(once.run(operation("b"), async |_| Ok(3)).await.unwrap(), Outcome::Fresh(3));
    assert_eq!(once.run(operation("b"), async |_| Ok(9)).await.unwrap(), Outcome::Replayed(3));
    let start = SystemClock.boot();
    until(async || state(&store, &dead).await == Some(StateKind::Unknown)).await;
    assert!(SystemClock.boot() - start < LEASE * 10, "it does not wait for the clock");
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(once.counts().reaped, 1, "whoever renews its lease keeps it");
    finish.send(()).unwrap();
    assert_eq!(alive.await.unwrap().unwrap(), Outcome::Fresh(2));
}

/// It is documented: what has ended is deleted by Redis's own clock. What has not is never deleted.
// threats B6, I6
#[tokio::test]
async fn a_redis_whose_clock_is_set_forward_forgets_early_and_only_what_has_ended() {
    let server = Redis::start_with_clock(&[]);
    let store = open(&server).await;
    settled(&store, &draft(1), "kept for a day").await;
    let (running, unknown) = (draft(2), draft(3));
    won(&store, &running).await;
    won(&store, &unknown).await;
    done(&store, &unknown, Next::Unknown { since: None }).await;
    server.set_clock_ahead(48 * HOUR);
    assert_eq!(store.load(id(1)).await.unwrap().record, None);
    assert_eq!(state(&store, &running).await, Some(StateKind::Running));
    assert_eq!(state(&store, &unknown).await, Some(StateKind::Unknown));
}

/// A swap reads, then writes. The times that it writes are of the moment of its write, however long its caller stood still
/// in between.
#[tokio::test]
async fn what_a_caller_that_stood_still_writes_is_kept_for_all_of_its_time() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let draft = draft(1);
    won(&store, &draft).await;
    let mut released = pin!(write(&store, &draft, Next::Released { expires_at: None }));
    assert!(poll!(released.as_mut()).is_pending(), "the record is being read");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let now = store.load(draft.id).await.unwrap().now;
    let released = released.await;
    assert!(matches!(released, Ok(Swap::Done(_))), "{released:?}");
    let expires_at = store.load(draft.id).await.unwrap().record.unwrap().expires_at().unwrap();
    assert!(expires_at >= now.plus_ms(draft.ttl_ms), "{expires_at:?} after {now:?}");
}

async fn state(store: &impl Store, draft: &Draft) -> Option<StateKind> {
    let seen = store.load(draft.id).await.unwrap();
    seen.record.map(|record| record.state.kind())
}

fn operation(key: &str) -> Operation {
    let principal = Principal::of("queue", b"orders");
    let policy = Policy::default().with_lease(LEASE);
    Operation::new("ship", principal, key).unwrap().with_policy(policy)
}

const LEASE: Duration = Duration::from_millis(400);
const HOUR: i64 = 60 * 60;
