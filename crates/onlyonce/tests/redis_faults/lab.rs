//! Drafts, writes and raw connections.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Record, Response, SettledBy, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::redis::RedisStore;
use onlyonce::store::{Draft, Fault, Guard, Lease, Next, Store, StoreError, Swap};
use servers::Redis;

pub(crate) fn id(number: u32) -> OperationId {
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    OperationId::from_bytes(spread.to_be_bytes())
}

pub(crate) fn draft(number: u32) -> Draft {
    Draft {
        id: id(number),
        token: Token::random(),
        key: KeyText::new(format!("order-{number}")),
        fingerprint: Fingerprint { version: 1, canonical: [7; 32], raw: [8; 32] },
        principal: Principal::from_bytes([9; 32]),
        route: "POST /orders".into(),
        target: "api.test/charges".into(),
        lease: Lease::new(Duration::from_secs(30)),
        quiet_ms: 60_000,
        ttl_ms: 86_400_000,
        not_after: StoreTime::MAX,
    }
}

pub(crate) fn response(text: &'static str) -> Arc<Response> {
    let body = Kept::Bytes { body: text.into(), trailers: None };
    Arc::new(Response { status: StatusCode::CREATED, headers: HeaderMap::new(), body })
}

pub(crate) fn completed(text: &'static str) -> Next {
    Next::Completed { settled_by: SettledBy::Owner, response: response(text), token: None }
}

/// What the owner of `draft` writes, from any state that is not final.
pub(crate) async fn write<S: Store>(store: &S, draft: &Draft, to: Next) -> Result<Swap, Fault> {
    let states = StateSet::of(&[StateKind::Running, StateKind::Unknown, StateKind::Released]);
    let guard = Guard::Owner { token: draft.token, states };
    store.swap(draft.id, guard, to).await
}

pub(crate) async fn done<S: Store>(store: &S, draft: &Draft, to: Next) {
    let swap = write(store, draft, to).await;
    assert!(matches!(swap, Ok(Swap::Done(_))), "{swap:?}");
}

pub(crate) async fn won<S: Store>(store: &S, draft: &Draft) {
    let seen = store.claim(draft.clone()).await.unwrap();
    assert!(seen.mine, "{seen:?}");
}

/// Claimed and settled.
pub(crate) async fn settled<S: Store>(store: &S, draft: &Draft, text: &'static str) -> Record {
    won(store, draft).await;
    done(store, draft, completed(text)).await;
    store.load(draft.id).await.unwrap().record.unwrap()
}

pub(crate) async fn open(server: &Redis) -> RedisStore {
    RedisStore::open(&server.url()).await.expect("the store opens")
}

pub(crate) fn raw(server: &Redis) -> redis::Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

/// The name of a record of the default prefix.
pub(crate) fn key(id: OperationId) -> String {
    let number = u128::from_be_bytes(*id.as_bytes());
    format!("oo:{number:032x}")
}

pub(crate) fn is_not_done<T>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::NotDone(StoreError::Unavailable(_))))
}

/// The first answer that a store gives, within ten seconds.
pub(crate) async fn once_up<T>(mut call: impl AsyncFnMut() -> Result<T, Fault>) -> T {
    let start = SystemClock.boot();
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(fault) => {
                let waited = SystemClock.boot() - start;
                assert!(waited < Duration::from_secs(10), "{fault:?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Until it is so, for at most ten seconds.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    let start = SystemClock.boot();
    while !is_so().await {
        assert!(SystemClock.boot() - start < Duration::from_secs(10), "it does not become so");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
