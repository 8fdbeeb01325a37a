//! More retries than the trail can take.

use std::time::Duration;

use onlyonce::EventKind::{Dropped, Replayed};
use onlyonce::Outcome;
use onlyonce::store::audit::EntryQuery;

use super::lab::Lab;

/// Another program holds the file for a while: replays go on from memory, and the trail says how many it missed.
#[tokio::test]
async fn what_had_to_be_dropped_is_counted_in_the_trail() {
    let lab = Lab::sqlite().await;
    assert_eq!(lab.run("order-1", "ch_1").await, Outcome::Fresh("ch_1".to_owned()));
    assert_eq!(lab.run("order-1", "ch_2").await, Outcome::Replayed("ch_1".to_owned()));
    let other = rusqlite::Connection::open(lab.directory.path().join("store.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for _ in 1..RETRIES {
        let again = lab.run("order-1", "ch_2").await;
        assert_eq!(again, Outcome::Replayed("ch_1".to_owned()));
    }
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    for _ in 0..1_000 {
        let (replayed, dropped) = counted(&lab).await;
        assert!(replayed + dropped <= RETRIES);
        if replayed + dropped == RETRIES {
            assert!(dropped > 0, "the queue has a bound");
            assert!(replayed >= 10_000, "what found room is there: {replayed}");
            assert_eq!(lab.once.counts().audit_dropped, dropped);
            lab.whole().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?} of {RETRIES} are told", counted(&lab).await);
}

/// How many replays the trail tells, and how many it says that it missed.
async fn counted(lab: &Lab) -> (u64, u64) {
    let (mut replayed, mut dropped) = (0, 0);
    let mut query = EntryQuery::all(1_000);
    loop {
        let page = lab.once.operations().audit(query).await.unwrap();
        for entry in &page.entries {
            replayed += u64::from(entry.note.kind == Replayed);
            dropped += entry.note.count.filter(|_| entry.note.kind == Dropped).unwrap_or(0);
        }
        query.after = page.next;
        if query.after.is_none() {
            return (replayed, dropped);
        }
    }
}

const RETRIES: u64 = 12_000;
