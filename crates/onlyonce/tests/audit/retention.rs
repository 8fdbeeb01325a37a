//! Entries that are old, and batches that were added before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce::EventKind;
use onlyonce::clock::{Clock, StoreTime};
use onlyonce::scope::OperationId;
use onlyonce::store::Inspect;
use onlyonce::store::audit::{
    Appended, Audit, AuditOptions, Calling, ChainRow, EntryPage, EntryQuery, Head, Note, Trail,
    WriterId, verify,
};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::sqlite::{SqliteOptions, SqliteStore, SqliteTrail};

use super::lab::{Lab, all, faults};

pub(crate) fn batch(number: u8, at: i64, count: usize) -> Arc<Appended> {
    let about = Arc::default();
    let note = Note { kind: EventKind::Replayed, id: None, status: None, count: None, about };
    let at = StoreTime::from_ms(at);
    Arc::new(Appended { batch: [number; 16], notes: vec![(at, note); count] })
}

/// What is old goes, oldest first; what is left is whole, and begins at the checkpoint.
pub(crate) async fn forgets_the_oldest_first(audit: &dyn Audit) {
    let trail = audit.trail();
    audit.append(batch(1, 100, 30)).await.unwrap();
    audit.append(batch(2, 200, 30)).await.unwrap();
    let until = StoreTime::from_ms(150);
    assert!(audit.prune(until, 20).await.unwrap(), "twenty are not all of them");
    assert_eq!(all(trail).await.len(), 40);
    assert_eq!(faults(trail).await, 0);
    assert!(!audit.prune(until, 20).await.unwrap());
    assert_eq!(all(trail).await.len(), 30);
    assert_eq!(faults(trail).await, 0);
    let kept = trail.heads().await.unwrap();
    assert_eq!(kept.iter().map(|head| head.from.sequence).sum::<u64>(), 30);
    assert!(!audit.prune(StoreTime::from_ms(1_000), 100).await.unwrap());
    assert_eq!((all(trail).await.len(), faults(trail).await), (0, 0));
    audit.append(batch(3, 300, 1)).await.unwrap();
    assert_eq!(all(trail).await[0].sequence, 61, "numbers go on");
    assert_eq!(faults(trail).await, 0);
}

/// A call whose answer was lost is repeated: its notes are there once.
pub(crate) async fn adds_a_repeated_batch_once(audit: &dyn Audit) {
    let trail = audit.trail();
    for _ in 0..3 {
        audit.append(batch(9, 100, 5)).await.unwrap();
    }
    assert_eq!(all(trail).await.len(), 5);
}

#[tokio::test]
async fn old_entries_go_and_the_rest_is_whole_in_memory() {
    let store = MemoryStore::new().with_audit(AuditOptions::default());
    forgets_the_oldest_first(store.audit().unwrap()).await;
    let store = MemoryStore::new().with_audit(AuditOptions::default());
    adds_a_repeated_batch_once(store.audit().unwrap()).await;
}

async fn sqlite(path: &std::path::Path) -> SqliteStore {
    let options = SqliteOptions::new().with_audit(AuditOptions::default());
    SqliteStore::open_with(path, options).await.unwrap()
}

#[tokio::test]
async fn old_entries_go_and_the_rest_is_whole_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let store = sqlite(&directory.path().join("one.db")).await;
    forgets_the_oldest_first(store.audit().unwrap()).await;
    let path = directory.path().join("two.db");
    let store = sqlite(&path).await;
    adds_a_repeated_batch_once(store.audit().unwrap()).await;
    store.close().await;
    let store = sqlite(&path).await;
    adds_a_repeated_batch_once(store.audit().unwrap()).await;
    let beside = SqliteTrail::open(&path).unwrap();
    assert_eq!(all(&beside).await.len(), 5, "a file that is in use can be read");
}

#[tokio::test]
async fn a_page_goes_on_where_the_last_one_ended() {
    let lab = Lab::sqlite().await;
    super::tampering::fill(&lab).await;
    let operations = lab.once.operations();
    let mut query = EntryQuery::all(5);
    let mut seen = Vec::new();
    loop {
        let page = operations.audit(query).await.unwrap();
        seen.extend(page.entries);
        query.after = page.next.map(|next| next.to_string().parse().unwrap());
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len() as u64, lab.whole().await);
    let middle = seen[seen.len() / 2].at;
    let whole = EntryQuery::all(1_000);
    let later = EntryQuery { since: Some(middle), ..whole };
    let earlier = EntryQuery { until: Some(middle), ..whole };
    let later = operations.audit(later).await.unwrap().entries;
    let earlier = operations.audit(earlier).await.unwrap().entries;
    assert_eq!(later.len() + earlier.len(), seen.len());
    assert!(later.iter().all(|entry| entry.at >= middle));
    let id = seen[0].note.id;
    let of_one = operations.audit(EntryQuery { id, ..whole }).await.unwrap().entries;
    assert_eq!(of_one.len(), seen.iter().filter(|entry| entry.note.id == id).count());
}

/// A trail from which old entries are deleted between any two reads.
struct Pruned(MemoryStore);

impl Trail for Pruned {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        self.0.entries(query)
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        self.0.count(id, kind)
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        Box::pin(async move {
            let heads = self.0.heads().await;
            self.0.prune(StoreTime::from_ms(150), 70).await?;
            heads
        })
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        Box::pin(async move {
            let rows = self.0.chain(writer, after, limit.min(100)).await;
            self.0.prune(StoreTime::from_ms(150), 70).await?;
            rows
        })
    }
}

#[tokio::test]
async fn entries_that_are_deleted_by_age_while_a_trail_is_verified_are_no_fault() {
    let store = MemoryStore::new().with_audit(AuditOptions::default());
    for number in 1..=20 {
        store.append(batch(number, 100, 50)).await.unwrap();
    }
    store.append(batch(21, 200, 50)).await.unwrap();
    let trail = Pruned(store);
    for _ in 0..3 {
        let verified = verify(&trail, &[]).await.unwrap();
        assert!(verified.is_whole(), "{verified:?}");
    }
    assert_eq!(all(&trail).await.len(), 50);
}

/// A trail that shows its newest entry after a few more reads than its head.
struct Late(MemoryStore, AtomicUsize);

impl Trail for Late {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        self.0.entries(query)
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        self.0.count(id, kind)
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        self.0.heads()
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        Box::pin(async move {
            let mut rows = self.0.chain(writer, after, limit).await?;
            let is_late = |left: usize| left.checked_sub(1);
            if self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_late).is_ok() {
                rows.retain(|row| row.sequence() < 7);
            }
            Ok(rows)
        })
    }
}

#[tokio::test]
async fn an_entry_that_a_store_shows_a_moment_after_its_head_is_no_fault() {
    let store = MemoryStore::new().with_audit(AuditOptions::default());
    store.append(batch(1, 100, 7)).await.unwrap();
    let trail = Late(store, AtomicUsize::new(5));
    let verified = verify(&trail, &[]).await.unwrap();
    assert!(verified.is_whole(), "{verified:?}");
    assert_eq!(verified.entries, 7);
    assert_eq!(trail.1.load(Ordering::Relaxed), 0, "it was late");
    trail.1.store(usize::MAX, Ordering::Relaxed);
    assert!(!verify(&trail, &[]).await.unwrap().is_whole(), "one that stays away is missing");
}

#[tokio::test]
async fn the_background_work_forgets_what_is_older_than_the_trail_keeps() {
    let clock = super::lab::Later::default();
    let options = AuditOptions::new(Duration::from_secs(60));
    let store = MemoryStore::with_clock(clock.clone()).with_audit(options);
    let long_ago = clock.wall().plus_ms(-120_000).as_ms();
    store.audit().unwrap().append(batch(1, long_ago, 7)).await.unwrap();
    let mut limits = onlyonce::Limits::default();
    limits.sweep_every = Duration::from_millis(20);
    let once = onlyonce::Once::builder(store.clone()).with_limits(limits).build();
    assert!(once.is_ready().await);
    for _ in 0..500 {
        if all(&store).await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("old entries are still there");
}
