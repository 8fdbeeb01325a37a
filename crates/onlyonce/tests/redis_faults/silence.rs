//! A server that is there and says nothing.

use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::redis::{ANSWER_WAIT, RedisOpenError, RedisStore};
use onlyonce::store::{Beat, Fault, Store, StoreError};
use servers::Redis;
use tokio::task::JoinSet;

use crate::lab::{completed, done, draft, id, is_not_done, once_up, open, settled, until, won};
use crate::proxy::Proxy;

// threat D10
#[tokio::test]
async fn a_call_of_a_silent_redis_is_unsure_in_bounded_time_and_is_resolved_by_repeating_it() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    settled(&store, &draft(1), "before").await;
    server.pause();
    let start = SystemClock.boot();
    let claimed = draft(2);
    let claim = store.claim(claimed.clone()).await;
    assert!(matches!(claim, Err(Fault::Unsure(StoreError::Unavailable(_)))), "{claim:?}");
    assert!(SystemClock.boot() - start < ANSWER_WAIT + SLACK);
    let start = SystemClock.boot();
    let next = store.claim(draft(3)).await;
    assert!(is_not_done(&next), "there is no connection: {next:?}");
    assert!(SystemClock.boot() - start < ANSWER_WAIT + SLACK);
    server.resume();
    let seen = once_up(async || store.claim(claimed.clone()).await).await;
    assert!(seen.mine, "{seen:?}");
    assert_eq!(store.load(id(3)).await.unwrap().record, None, "what was not sent was not done");
    done(&store, &claimed, completed("after")).await;
}

/// The network keeps a claim, and delivers it long after another connection has answered.
#[tokio::test]
async fn what_an_old_connection_left_is_not_run_after_what_a_new_one_answered() {
    let server = Redis::start(&[]);
    let proxy = Proxy::before(&server);
    let store = RedisStore::open(&proxy.url()).await.unwrap();
    settled(&store, &draft(1), "before").await;
    proxy.hold();
    let late = store.claim(draft(2)).await;
    assert!(matches!(late, Err(Fault::Unsure(_))), "{late:?}");
    assert_eq!(once_up(async || store.load(id(2)).await).await.record, None);
    assert!(proxy.deliver() > 0, "the claim was on its way");
    assert_eq!(store.load(id(2)).await.unwrap().record, None, "it came too late");
}

#[tokio::test]
async fn a_silent_redis_is_not_opened_and_not_waited_for() {
    let server = Redis::start(&[]);
    server.pause();
    let start = SystemClock.boot();
    let refused = RedisStore::open(&server.url()).await;
    assert!(matches!(refused, Err(RedisOpenError::Silent { .. })), "{refused:?}");
    assert!(SystemClock.boot() - start < ANSWER_WAIT);
    server.resume();
}

// R126
#[tokio::test]
async fn more_calls_than_there_is_room_for_are_refused_at_once() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    server.pause();
    let mut lanes = JoinSet::new();
    for number in 0..CALLS_MAX + 2_000 {
        let store = store.clone();
        lanes.spawn(async move { store.claim(draft(number)).await });
    }
    let claims = lanes.join_all().await;
    server.resume();
    let busy = |claim: &&_| matches!(claim, Err(Fault::NotDone(StoreError::Busy)));
    let refused = claims.iter().filter(busy).count();
    assert_eq!(refused, 2_000);
    assert!(claims.iter().all(Result::is_err));
}

/// A flood of other calls loses nobody a lease.
#[tokio::test]
async fn renewals_have_room_of_their_own() {
    let server = Redis::start(&[]);
    let store = open(&server).await;
    let held = draft(1);
    won(&store, &held).await;
    server.pause();
    let mut lanes = JoinSet::new();
    for number in 2..CALLS_MAX + 2_000 {
        let store = store.clone();
        lanes.spawn(async move { store.claim(draft(number)).await });
    }
    until(async || lanes.try_join_next().is_some()).await;
    let renewed = [(held.id, held.token)];
    let renewal = store.renew(&renewed, held.lease);
    let (beats, ()) = tokio::join!(renewal, async { server.resume() });
    assert_eq!(beats.unwrap(), [Beat::Kept]);
}

/// As many as a store has room for.
const CALLS_MAX: u32 = 8_192;
const SLACK: Duration = Duration::from_secs(1);
