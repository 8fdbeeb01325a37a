//! An engine on a store that keeps a trail.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::record::{Kept, Response};
use onlyonce::scope::{OperationId, Principal};
use onlyonce::store::audit::{AuditOptions, Entry, EntryQuery, Trail, verify};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::sqlite::{SqliteOptions, SqliteStore};
use onlyonce::store::{Inspect, Watch};
use onlyonce::{By, EventKind, Failure, Once, Operation, Outcome, Policy};
use tempfile::TempDir;

/// The system's clock, and as much later as a test says.
#[derive(Clone, Default)]
pub(crate) struct Later(Arc<AtomicI64>);

impl Later {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Later {
    fn wall(&self) -> StoreTime {
        SystemClock.wall().plus_ms(self.0.load(Ordering::SeqCst))
    }

    fn boot(&self) -> Duration {
        SystemClock.boot() + Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

pub(crate) struct Lab {
    pub(crate) once: Once,
    pub(crate) clock: Later,
    pub(crate) directory: TempDir,
}

impl Lab {
    pub(crate) fn memory() -> Self {
        let clock = Later::default();
        let store = MemoryStore::with_clock(clock.clone()).with_audit(AuditOptions::default());
        Self::on(store, clock, tempfile::tempdir().unwrap())
    }

    pub(crate) async fn sqlite() -> Self {
        let (clock, directory) = (Later::default(), tempfile::tempdir().unwrap());
        let options =
            SqliteOptions::new().with_clock(clock.clone()).with_audit(AuditOptions::default());
        let path = directory.path().join("store.db");
        let store = SqliteStore::open_with(path, options).await.unwrap();
        Self::on(store, clock, directory)
    }

    pub(crate) fn on(store: impl Watch + Inspect, clock: Later, directory: TempDir) -> Self {
        let once = Once::builder(store).with_clock(clock.clone()).build();
        Self { once, clock, directory }
    }

    /// Runs an operation whose answer is the JSON string `value`.
    pub(crate) async fn run(&self, key: &str, value: &'static str) -> Outcome<String> {
        let work = move |_| async move { Ok(value.to_owned()) };
        self.once.run(operation(key), work).await.unwrap()
    }

    /// Leaves an operation unknown, and returns its id.
    pub(crate) async fn unknown(&self, key: &str) -> OperationId {
        let (tell, told) = tokio::sync::oneshot::channel();
        let outcome = self.once.run(operation(key), |attempt| async move {
            tell.send(attempt.id).unwrap();
            Err::<String, _>(Failure::Unknown("no answer".into()))
        });
        assert!(matches!(outcome.await.unwrap(), Outcome::Unknown { .. }));
        told.await.unwrap()
    }

    /// The entries of a key, once there are `count` of them.
    pub(crate) async fn entries(&self, key: &str, count: usize) -> Vec<Entry> {
        let operations = self.once.operations();
        let key = Some(operations.key_digest(key));
        let query = EntryQuery { key, ..EntryQuery::all(1_000) };
        let mut entries = Vec::new();
        for _ in 0..500 {
            entries = operations.audit(query).await.unwrap().entries;
            if entries.len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(entries.len(), count, "{entries:#?}");
        entries
    }

    /// What happened to a key, in the order in which it was kept.
    pub(crate) async fn kinds(&self, key: &str, count: usize) -> Vec<EventKind> {
        let mut entries = self.entries(key, count).await;
        entries.sort_by_key(|entry| (entry.writer, entry.sequence));
        entries.iter().map(|entry| entry.note.kind).collect()
    }

    pub(crate) async fn whole(&self) -> u64 {
        let verified = self.once.operations().verify_audit(&[]).await.unwrap();
        assert!(verified.is_whole(), "{verified:?}");
        verified.entries
    }
}

pub(crate) fn operation(key: &str) -> Operation {
    let policy = Policy::default()
        .with_route("charges")
        .with_audit_ids(["".parse().unwrap(), "/none".parse().unwrap()]);
    let operation = Operation::new("charges", Principal::of("user", b"ann"), key).unwrap();
    operation.with_policy(policy)
}

pub(crate) fn by() -> By {
    By::new("ann", "the bank's statement has it").unwrap()
}

pub(crate) fn answer(text: &'static str) -> Arc<Response> {
    let body = Kept::Bytes { body: Bytes::from_static(text.as_bytes()), trailers: None };
    Arc::new(Response { status: StatusCode::OK, headers: HeaderMap::new(), body })
}

/// Every entry of a trail.
pub(crate) async fn all(trail: &dyn Trail) -> Vec<Entry> {
    let mut query = EntryQuery::all(7);
    let mut entries = Vec::new();
    loop {
        let page = trail.entries(query).await.unwrap();
        entries.extend(page.entries);
        query.after = page.next;
        if query.after.is_none() {
            return entries;
        }
    }
}

pub(crate) async fn faults(trail: &dyn Trail) -> usize {
    verify(trail, &[]).await.unwrap().broken.len()
}
