//! Behaviours of the store as a whole.

mod contract;
mod damage;
mod disk;
mod log;
mod owner;
mod sweeping;
mod timing;
mod trail;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tempfile::TempDir;

use super::{SqliteOptions, SqliteStore};
use crate::clock::{Clock, StoreTime};
use crate::fingerprint::Fingerprint;
use crate::record::{Kept, KeyText, Record, Response, SettledBy, StateKind, StateSet, Token};
use crate::scope::{OperationId, Principal};
use crate::store::{Draft, Guard, Lease, Maintain, Next, Page, Scan, Seen, Store, Swap};

/// A store in a directory of its own, on a clock that the test moves.
struct Lab {
    directory: TempDir,
    clock: TestClock,
    store: SqliteStore,
}

impl Lab {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = TestClock::default();
        let store = open(&directory.path().join("store.db"), &clock).await.unwrap();
        Self { directory, clock, store }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    /// Closes it and opens it again.
    async fn reopened(self) -> Self {
        self.store.close().await;
        let store = open(&self.path(), &self.clock).await.unwrap();
        Self { store, ..self }
    }

    async fn load(&self, n: u32) -> Option<Record> {
        self.store.load(id(n)).await.unwrap().record
    }

    async fn kind(&self, n: u32) -> Option<StateKind> {
        self.load(n).await.map(|record| record.state.kind())
    }

    /// Claims `n` and returns its token.
    async fn claimed(&self, n: u32) -> Token {
        let draft = draft(n);
        let token = draft.token;
        let seen = self.store.claim(draft).await.unwrap();
        assert!(seen.mine, "{n} was there already");
        token
    }

    async fn settled(&self, n: u32) -> Token {
        let token = self.claimed(n).await;
        let done = self.swap(n, owner(token), settle(n)).await;
        assert!(matches!(done, Swap::Done(_)));
        token
    }

    async fn unknown(&self, n: u32) -> Token {
        let token = self.claimed(n).await;
        let done = self.swap(n, owner(token), Next::Unknown { since: None }).await;
        assert!(matches!(done, Swap::Done(_)));
        token
    }

    async fn swap(&self, n: u32, guard: Guard, to: Next) -> Swap {
        self.store.swap(id(n), guard, to).await.unwrap()
    }

    async fn now(&self) -> StoreTime {
        self.store.load(id(0)).await.unwrap().now
    }

    async fn sweep(&self, limit: usize) -> (usize, bool) {
        let swept = self.store.sweep(self.now().await, limit).await.unwrap();
        (swept.deleted, swept.more)
    }

    /// Everything in `states`, page by page.
    async fn list(&self, states: &[StateKind], limit: usize) -> Vec<OperationId> {
        let mut ids = Vec::new();
        let mut after = None;
        loop {
            let page: Page =
                self.store.scan(Scan { states: StateSet::of(states), after, limit }).await.unwrap();
            ids.extend(page.records.iter().map(|(id, _)| *id));
            after = page.next;
            if after.is_none() {
                ids.sort();
                return ids;
            }
        }
    }
}

async fn open(path: &Path, clock: &TestClock) -> Result<SqliteStore, super::SqliteOpenError> {
    SqliteStore::open_with(path, SqliteOptions::new().with_clock(clock.clone())).await
}

/// Wall and boot clock in one; starts at a million seconds.
#[derive(Clone)]
struct TestClock(Arc<AtomicI64>);

impl Default for TestClock {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(1_000_000_000)))
    }
}

impl TestClock {
    fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn wall(&self) -> StoreTime {
        StoreTime::from_ms(self.0.load(Ordering::SeqCst))
    }

    fn boot(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

fn id(n: u32) -> OperationId {
    let mut bytes = [7; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    OperationId::from_bytes(bytes)
}

fn draft(n: u32) -> Draft {
    Draft {
        id: id(n),
        token: Token::random(),
        key: KeyText::new(format!("key-{n}")),
        fingerprint: Fingerprint { version: 1, canonical: [2; 32], raw: [3; 32] },
        principal: Principal::from_bytes([4; 32]),
        route: "POST /charges".into(),
        target: "api.test/charges".into(),
        lease: Lease::new(Duration::from_secs(30)),
        quiet_ms: 60_000,
        ttl_ms: TTL_MS,
        not_after: StoreTime::MAX,
    }
}

fn owner(token: Token) -> Guard {
    Guard::Owner { token, states: StateSet::of(&StateKind::ALL[..3]) }
}

fn settle(n: u32) -> Next {
    Next::Completed { settled_by: SettledBy::Owner, response: Arc::new(response(n)), token: None }
}

fn response(n: u32) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", "application/json".parse().unwrap());
    let body = format!("{{\"charge\":{n},\"padding\":\"{}\"}}", "x".repeat(250));
    Response {
        status: StatusCode::CREATED,
        headers,
        body: Kept::Bytes { body: body.into(), trailers: None },
    }
}

fn answer(seen: &Seen) -> Option<&Response> {
    seen.record.as_ref()?.response().map(AsRef::as_ref)
}

const TTL_MS: i64 = 86_400_000;
