//! I/O errors, and files that are deleted or replaced.

use std::fs;

use futures_util::future::join_all;

use super::*;
use crate::record::State;
use crate::store::{Fault, StoreError};

pub(super) fn is_unsure<T>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::Unsure(StoreError::Unavailable(_))))
}

/// Repeats until the store is up again.
pub(super) async fn claim_again(lab: &Lab, draft: &Draft) -> Seen {
    for _ in 0..200 {
        match lab.store.claim(draft.clone()).await {
            Ok(seen) => return seen,
            Err(Fault::NotDone(StoreError::Unavailable(_))) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("the store stayed down");
}

// threat E4
#[tokio::test]
async fn a_commit_that_failed_leaves_everyone_unsure_and_a_repeat_tells_the_truth() {
    let lab = Lab::new().await;
    let before = lab.settled(0).await;
    for happened in [false, true] {
        let first = if happened { 100 } else { 10 };
        match happened {
            false => lab.store.shared.faults.fail_before(1),
            true => lab.store.shared.faults.fail_after(1),
        }
        let drafts: Vec<_> = (first..first + 5).map(draft).collect();
        let claims = join_all(drafts.iter().map(|draft| lab.store.claim(draft.clone()))).await;
        assert!(claims.iter().any(is_unsure), "{claims:?}");
        for draft in &drafts {
            assert!(claim_again(&lab, draft).await.mine);
        }
    }
    assert_eq!(lab.load(0).await.unwrap().token, before);
    let lab = lab.reopened().await;
    assert_eq!(lab.list(&[StateKind::Unknown], 100).await.len(), 10);
}

// Memory and waiters change only after the commit.
#[tokio::test]
async fn nothing_is_visible_of_a_commit_that_did_not_happen() {
    let lab = Lab::new().await;
    let token = lab.claimed(1).await;
    lab.store.shared.faults.fail_before(1);
    let settle = lab.store.swap(id(1), owner(token), settle(1)).await;
    assert!(is_unsure(&settle));
    claim_again(&lab, &draft(2)).await;
    assert_eq!(lab.kind(1).await, Some(StateKind::Running));
}

// threat E4
#[tokio::test]
async fn owners_of_this_process_keep_their_leases_through_a_reopening() {
    let lab = Lab::new().await;
    let token = lab.claimed(1).await;
    lab.clock.advance(7_000);
    lab.store.renew(&[(id(1), token)], Lease::new(Duration::from_secs(30))).await.unwrap();
    let before = lab.load(1).await;
    lab.store.shared.faults.fail_before(1);
    assert!(is_unsure(&lab.store.claim(draft(2)).await));
    claim_again(&lab, &draft(2)).await;
    assert_eq!(lab.load(1).await, before);
    assert!(matches!(before.unwrap().state, State::Running { .. }));
    let done = lab.swap(1, owner(token), settle(1)).await;
    assert!(matches!(done, Swap::Done(_)));
}

// threat E4: what an earlier checkpoint wrote may be lost with a failed sync, and only the log has it.
#[cfg(unix)]
#[tokio::test]
async fn the_wal_survives_a_reopening() {
    use std::os::unix::fs::MetadataExt;
    let lab = Lab::new().await;
    let log = fs::File::open(lab.directory.path().join("store.db-wal")).unwrap();
    lab.settled(1).await;
    lab.store.shared.faults.fail_before(1);
    assert!(is_unsure(&lab.store.claim(draft(2)).await));
    claim_again(&lab, &draft(2)).await;
    assert_eq!(log.metadata().unwrap().nlink(), 1);
}

// threat E6
#[tokio::test]
async fn a_file_deleted_under_an_open_store_takes_it_down() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    fs::remove_file(lab.path()).unwrap();
    let claim = lab.store.claim(draft(2)).await;
    assert!(is_unsure(&claim), "{claim:?}");
    let claim = lab.store.claim(draft(3)).await;
    assert!(matches!(claim, Err(Fault::NotDone(StoreError::Unavailable(_)))), "{claim:?}");
    assert!(lab.store.load(id(1)).await.is_err());
}

// threat E6
#[tokio::test]
async fn a_file_replaced_under_an_open_store_takes_it_down() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    let copy = lab.path().with_file_name("copy.db");
    fs::copy(lab.path(), &copy).unwrap();
    fs::rename(&copy, lab.path()).unwrap();
    assert!(is_unsure(&lab.store.claim(draft(2)).await));
    assert!(lab.store.claim(draft(3)).await.is_err());
    lab.store.close().await;
}

// threat E2
#[tokio::test]
async fn an_outside_writer_is_waited_for_and_then_work_is_refused_undone() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    let outside = rusqlite::Connection::open(lab.path()).unwrap();
    outside.busy_timeout(Duration::from_secs(5)).unwrap();
    // An outside writer that holds the file for longer than anyone waits.
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = lab.store.claim(draft(2)).await;
    assert!(matches!(refused, Err(Fault::NotDone(StoreError::Busy))), "{refused:?}");
    outside.execute_batch("ROLLBACK").unwrap();
    assert!(lab.store.claim(draft(2)).await.unwrap().mine);
    assert_eq!(lab.kind(1).await, Some(StateKind::Completed));
}

#[tokio::test]
async fn a_wal_that_grows_is_written_back_and_restarted() {
    let lab = Lab::new().await;
    for round in 0..12 {
        join_all((0..400).map(|n| lab.settled(round * 1000 + n))).await;
    }
    let big = Response {
        body: Kept::Bytes { body: vec![7; 1 << 20].into(), trailers: None },
        ..response(0)
    };
    for n in 100_000..100_120 {
        let token = lab.claimed(n).await;
        let to = Next::Completed {
            settled_by: SettledBy::Owner,
            response: Arc::new(big.clone()),
            token: None,
        };
        lab.swap(n, owner(token), to).await;
    }
    let log = fs::metadata(lab.directory.path().join("store.db-wal")).unwrap().len();
    assert!(log < 80 << 20, "120 MiB were written and the log has {log} bytes");
    let lab = lab.reopened().await;
    assert_eq!(answer(&lab.store.load(id(100_077)).await.unwrap()), Some(&big));
}

// threat E2
#[tokio::test]
async fn what_an_outside_writer_changed_is_read_again_before_anything_is_written() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    let token = lab.claimed(2).await;
    let outside = rusqlite::Connection::open(lab.path()).unwrap();
    outside.execute_batch("UPDATE record_27 SET key = 'other' WHERE row = 1").unwrap();
    drop(outside);
    let refused = lab.store.claim(draft(3)).await;
    assert!(matches!(refused, Err(Fault::NotDone(StoreError::Busy))), "{refused:?}");
    assert!(claim_again(&lab, &draft(3)).await.mine);
    let unreadable = lab.store.load(id(1)).await;
    assert!(matches!(unreadable, Err(Fault::NotDone(StoreError::Unreadable(_)))));
    let done = lab.swap(2, owner(token), settle(2)).await;
    assert!(matches!(done, Swap::Done(_)));
}

// threat E2
#[tokio::test]
async fn a_wal_that_a_reader_pins_is_restarted_once_the_reader_ends() {
    let lab = Lab::new().await;
    lab.settled(0).await;
    let outside = rusqlite::Connection::open(lab.path()).unwrap();
    outside.execute_batch("BEGIN; SELECT * FROM meta").unwrap();
    let wal = lab.directory.path().join("store.db-wal");
    write_megabytes(&lab, 1..61).await;
    assert!(fs::metadata(&wal).unwrap().len() > 60 << 20);
    outside.execute_batch("COMMIT").unwrap();
    let before = fs::metadata(&wal).unwrap().len();
    write_megabytes(&lab, 61..200).await;
    let grown = fs::metadata(&wal).unwrap().len() - before;
    assert!(grown < 100 << 20, "139 MiB were written and the log grew by {grown} bytes");
}

async fn write_megabytes(lab: &Lab, numbers: std::ops::Range<u32>) {
    let body = Kept::Bytes { body: vec![7; 1 << 20].into(), trailers: None };
    let response = Arc::new(Response { body, ..response(0) });
    for n in numbers {
        let token = lab.claimed(n).await;
        let to = Next::Completed {
            settled_by: SettledBy::Owner,
            response: response.clone(),
            token: None,
        };
        lab.swap(n, owner(token), to).await;
    }
}
