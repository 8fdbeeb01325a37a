//! What these tests are made of: drafts, writes, and a second session beside the store's.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use onlyonce::clock::StoreTime;
use onlyonce::fingerprint::Fingerprint;
use onlyonce::record::{Kept, KeyText, Response, SettledBy, StateKind, StateSet, Token};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::{Draft, Fault, Guard, Lease, Next, Store, StoreError, Swap};
use tokio_postgres::{Client, NoTls};

/// The claim of operation `number`; ids in the order of their numbers.
pub(crate) fn draft(number: u64) -> Draft {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    Draft {
        id: OperationId::from_bytes(id),
        token: Token::random(),
        key: KeyText::new(format!("key {number}")),
        fingerprint: Fingerprint { version: 1, canonical: [1; 32], raw: [2; 32] },
        principal: Principal::from_bytes([3; 32]),
        route: "POST /charges".into(),
        target: "api.test/charges".into(),
        lease: Lease::new(Duration::from_secs(30)),
        quiet_ms: 60_000,
        ttl_ms: 3_600_000,
        not_after: StoreTime::MAX,
    }
}

/// One that has expired as soon as it is settled and a moment has passed.
pub(crate) fn brief(number: u64) -> Draft {
    Draft { ttl_ms: 0, ..draft(number) }
}

pub(crate) fn response(body: &str) -> Arc<Response> {
    let body = Kept::Bytes { body: body.to_owned().into(), trailers: None };
    Arc::new(Response { status: StatusCode::CREATED, headers: HeaderMap::new(), body })
}

pub(crate) async fn settle(store: &PostgresStore, draft: &Draft) -> Result<Swap, Fault> {
    let to =
        Next::Completed { settled_by: SettledBy::Owner, response: response("done"), token: None };
    let guard = Guard::Owner { token: draft.token, states: StateSet::of(&StateKind::ALL[..3]) };
    store.swap(draft.id, guard, to).await
}

pub(crate) async fn won(store: &PostgresStore, draft: &Draft) {
    assert!(store.claim(draft.clone()).await.expect("the store answers").mine);
}

pub(crate) async fn settled(store: &PostgresStore, draft: &Draft) {
    let swap = settle(store, draft).await.expect("the store answers");
    assert!(matches!(swap, Swap::Done(_)), "{swap:?}");
}

/// Claims and settles it.
pub(crate) async fn completed(store: &PostgresStore, draft: &Draft) {
    won(store, draft).await;
    settled(store, draft).await;
}

/// The server's time.
pub(crate) async fn now(store: &PostgresStore) -> StoreTime {
    store.load(draft(u64::MAX).id).await.expect("the store answers").now
}

pub(crate) async fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url).await.unwrap_or_else(|error| panic!("{}", said(&error)))
}

pub(crate) async fn open_with(url: &str, options: PostgresOptions) -> PostgresStore {
    PostgresStore::open_with(url, options).await.unwrap_or_else(|error| panic!("{}", said(&error)))
}

/// An error and what is below it.
pub(crate) fn said(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |below| format!("{error}: {}", said(below)))
}

pub(crate) fn is_unsure<T: std::fmt::Debug>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::Unsure(StoreError::Unavailable(_))))
}

pub(crate) fn is_away<T: std::fmt::Debug>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::NotDone(StoreError::Unavailable(_))))
}

/// Others hold what it needs: nothing to pass the store by for.
pub(crate) fn is_busy<T: std::fmt::Debug>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::NotDone(StoreError::Busy)))
}

pub(crate) fn is_closed<T: std::fmt::Debug>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::NotDone(StoreError::Closed)))
}

/// Another session.
pub(crate) async fn session(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until `sql` says `t`.
pub(crate) async fn until(session: &Client, sql: &str) {
    let is_so = async {
        while !session.query_one(sql, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_so)
        .await
        .unwrap_or_else(|_| panic!("never: {sql}"));
}

/// Waits until no store has a session: what they did is counted then.
pub(crate) async fn until_gone(session: &Client) {
    let ours = "FROM pg_stat_activity WHERE application_name = 'onlyonce'";
    until(session, &format!("SELECT NOT EXISTS (SELECT {ours})")).await;
}

/// Waits until a session of the store waits for a lock.
pub(crate) async fn until_blocked(session: &Client) {
    until(session, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')")
        .await;
}

/// Locks the row of `draft` until the session is told otherwise.
pub(crate) async fn lock(session: &Client, draft: &Draft) {
    let sql = format!("SELECT FROM onlyonce.record WHERE id = '{}' FOR UPDATE", draft.id);
    session.batch_execute(&format!("BEGIN; {sql}")).await.unwrap();
}

/// The tests with far larger counts.
pub(crate) fn is_full() -> bool {
    std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full")
}
