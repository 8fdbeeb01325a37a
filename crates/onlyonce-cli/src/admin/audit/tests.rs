use std::sync::Arc;

use onlyonce::EventKind;
use onlyonce::Once;
use onlyonce::store::Inspect;
use onlyonce::store::audit::{Appended, AuditOptions, Note};
use onlyonce::store::memory::MemoryStore;

use super::*;

/// An operation that was claimed, replayed so often, a second apart, and then released.
async fn replayed(times: i64) -> Vec<Entry> {
    let id = OperationId::from_bytes([7; 16]);
    let store = MemoryStore::new().with_audit(AuditOptions::default());
    let note = |kind| Note { kind, id: Some(id), ..Note::dropped(1) };
    let at = |seconds: i64| StoreTime::from_ms(seconds * 1_000);
    let replays = (1..=times).map(|second| (at(second), note(EventKind::Replayed)));
    let ends = [(at(0), note(EventKind::Claimed)), (at(times + 1), note(EventKind::Released))];
    let batch = Appended { batch: [1; 16], notes: ends.into_iter().chain(replays).collect() };
    store.audit().expect("a trail").append(Arc::new(batch)).await.unwrap();
    newest(&Once::new(store).operations(), id, at(times + 1)).await.unwrap()
}

#[tokio::test]
async fn the_newest_events_are_told_of_an_operation_with_too_many() {
    for times in [EVENTS_MAX as i64, 2_000, 100_000] {
        let entries = replayed(times).await;
        assert!((EVENTS_MAX / 2..=EVENTS_MAX).contains(&entries.len()), "{}", entries.len());
        assert_eq!(entries.last().unwrap().note.kind, EventKind::Released);
        assert!(entries.is_sorted_by_key(|entry| entry.at));
    }
}

#[tokio::test]
async fn all_events_are_told_of_an_operation_with_few() {
    let kinds: Vec<_> = replayed(3).await.iter().map(|entry| entry.note.kind).collect();
    let [claimed, released] = [EventKind::Claimed, EventKind::Released];
    assert_eq!(
        kinds,
        [claimed, EventKind::Replayed, EventKind::Replayed, EventKind::Replayed, released]
    );
}
