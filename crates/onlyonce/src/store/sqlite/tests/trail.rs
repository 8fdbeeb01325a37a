//! The audit trail through commits that fail, or whose answer is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::event::EventKind;
use crate::store::audit::{About, AuditOptions, EntryQuery, Note, Trail, verify};
use crate::store::{Fault, Inspect};

async fn audited() -> Lab {
    let directory = tempfile::tempdir().unwrap();
    let clock = TestClock::default();
    let options =
        SqliteOptions::new().with_clock(clock.clone()).with_audit(AuditOptions::default());
    let path = directory.path().join("store.db");
    let store = SqliteStore::open_with(path, options).await.unwrap();
    Lab { directory, clock, store }
}

fn note(n: u32) -> Arc<Note> {
    let about = Arc::new(About::default());
    let (kind, id) = (EventKind::Claimed, Some(id(n)));
    Arc::new(Note { kind, id, status: None, count: None, about })
}

/// Claims until the store says what became of it; whether it was unsure on the way.
async fn claim(lab: &Lab, draft: &Draft, n: u32) -> bool {
    let audit = lab.store.audit().unwrap();
    let mut was_unsure = false;
    for _ in 0..500 {
        match audit.claim(draft.clone(), note(n)).await {
            Ok(seen) => {
                assert!(seen.mine);
                return was_unsure;
            }
            Err(Fault::Unsure(_)) => was_unsure = true,
            Err(Fault::NotDone(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    panic!("{n} was never claimed");
}

// threat E4
#[tokio::test]
async fn a_commit_that_was_unsure_leaves_one_entry_and_no_gap() {
    let lab = audited().await;
    for happened in [false, true] {
        let first = if happened { 100 } else { 10 };
        match happened {
            false => lab.store.shared.faults.fail_before(1),
            true => lab.store.shared.faults.fail_after(1),
        }
        let drafts: Vec<_> = (first..first + 5).map(|n| (n, draft(n))).collect();
        let unsure = join_all(drafts.iter().map(|(n, draft)| claim(&lab, draft, *n))).await;
        assert!(unsure.contains(&true));
    }
    assert!(!claim(&lab, &draft(200), 200).await, "the chain goes on");
    let verified = verify(&lab.store, &[]).await.unwrap();
    assert!(verified.is_whole(), "{verified:?}");
    let entries = lab.store.entries(EntryQuery::all(100)).await.unwrap().entries;
    let mut ids: Vec<_> = entries.iter().filter_map(|entry| entry.note.id).collect();
    ids.sort();
    let expected: Vec<_> = (10..15).chain(100..105).chain([200]).map(id).collect();
    assert_eq!(ids, expected, "each claim is told once");
}

/// Somebody has changed a row: those after it are still listed.
#[tokio::test]
async fn an_entry_that_does_not_read_ends_no_listing() {
    let lab = audited().await;
    for n in 1..=9 {
        claim(&lab, &draft(n), n).await;
    }
    let beside = rusqlite::Connection::open(lab.directory.path().join("store.db")).unwrap();
    beside.execute_batch("UPDATE audit SET kind = 'nonsense' WHERE sequence = 2").unwrap();
    let (mut query, mut listed) = (EntryQuery::all(3), 0);
    loop {
        let page = lab.store.entries(query).await.unwrap();
        listed += page.entries.len();
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(listed, 8);
}

/// A change that is refused is not in the trail.
#[tokio::test]
async fn an_answer_that_is_too_large_is_neither_kept_nor_told() {
    let lab = audited().await;
    let draft = draft(1);
    claim(&lab, &draft, 1).await;
    let body = vec![0; lab.store.limits().body_bytes_max + 1].into();
    let body = Kept::Bytes { body, trailers: None };
    let headers = HeaderMap::new();
    let response = Arc::new(Response { status: StatusCode::OK, headers, body });
    let to = Next::Completed { settled_by: SettledBy::Owner, response, token: None };
    let guard = Guard::Owner { token: draft.token, states: StateSet::of(&[StateKind::Running]) };
    let refused = lab.store.audit().unwrap().swap(draft.id, guard, to, note(1)).await;
    assert!(matches!(refused, Err(Fault::NotDone(_))), "{refused:?}");
    let entries = lab.store.entries(EntryQuery::all(100)).await.unwrap().entries;
    assert_eq!(entries.len(), 1, "only the claim");
}
