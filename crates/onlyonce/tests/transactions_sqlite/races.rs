//! Duplicates at the same time.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::transaction::{Begun, Reply, Transactions};
use rusqlite::Connection;

use crate::lab::{
    BUSY_TIMEOUT, Lab, ROLLBACK_JOURNAL, WAL, charge, created, insert_charge, mine, replayed,
    tiered,
};

// R127
#[test]
fn a_duplicate_of_an_open_operation_waits_no_longer_than_its_busy_timeout() {
    for settings in [WAL, ROLLBACK_JOURNAL] {
        let lab = Lab::with(settings);
        let (mut first, mut second) = (lab.open(), lab.open());
        let tx = mine(&mut first, &charge("k"));
        insert_charge(&tx);
        let start = SystemClock.boot();
        let begun = Transactions::new().begin_in(&mut second, &charge("k")).unwrap();
        assert!(matches!(begun, Begun::InProgress { .. }), "{begun:?}");
        drop(begun);
        assert!(SystemClock.boot() - start < BUSY_TIMEOUT + Duration::from_secs(5));
        tx.complete(created()).unwrap();
        assert_eq!(replayed(&mut second, &charge("k")), created());
        assert_eq!(lab.charges(), 1);
    }
}

#[test]
fn a_completed_operation_is_replayed_while_another_one_has_the_lock() {
    for settings in [WAL, ROLLBACK_JOURNAL] {
        let lab = Lab::with(settings);
        let (mut first, mut second) = (lab.open(), lab.open());
        mine(&mut first, &charge("done")).complete(created()).unwrap();
        let tx = mine(&mut first, &charge("open"));
        assert_eq!(replayed(&mut second, &charge("done")), created());
        tx.complete(created()).unwrap();
    }
}

/// A reader keeps a file with a rollback journal from being committed to.
#[test]
fn a_commit_that_does_not_get_its_lock_leaves_nothing() {
    let lab = Lab::with(ROLLBACK_JOURNAL);
    let (mut writer, reader) = (lab.open(), lab.open());
    let tx = mine(&mut writer, &charge("k"));
    insert_charge(&tx);
    reader.execute_batch("BEGIN; SELECT count(*) FROM charge").unwrap();
    tx.complete(created()).unwrap_err();
    reader.execute_batch("COMMIT").unwrap();
    assert!(writer.is_autocommit());
    assert_eq!(lab.charges(), 0);
    drop(mine(&mut writer, &charge("k")));
}

// R127
#[test]
fn sixty_four_duplicates_over_two_connections_have_one_effect() {
    // With a rollback journal a commit waits for readers, too.
    for (settings, timeout) in [(WAL, Duration::ZERO), (ROLLBACK_JOURNAL, BUSY_TIMEOUT)] {
        let lab = Lab::with(settings);
        let mut in_progress = 0;
        for round in 0..tiered(100) {
            let key = format!("k{round}");
            let start = Barrier::new(2);
            let answers: Vec<_> = thread::scope(|scope| {
                let caller = || call(lab.open(), timeout, &key, &start);
                let callers = [scope.spawn(caller), scope.spawn(caller)];
                callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
            });
            assert_eq!(answers.len(), 64);
            assert_eq!(answers.iter().filter(|(is_mine, _)| *is_mine).count(), 1);
            assert!(answers.iter().flat_map(|(_, reply)| reply).all(|reply| *reply == created()));
            in_progress += answers.iter().filter(|(_, reply)| reply.is_none()).count();
            assert_eq!(lab.charges(), round as i64 + 1);
        }
        println!("{settings}: {in_progress} were told that it is in progress");
    }
}

/// 32 calls one after the other: whether it did the work, and the answer unless it is in progress.
fn call(
    mut db: Connection,
    timeout: Duration,
    key: &str,
    start: &Barrier,
) -> Vec<(bool, Option<Reply>)> {
    db.busy_timeout(timeout).unwrap();
    start.wait();
    let call = |_| match Transactions::new().begin_in(&mut db, &charge(key)).unwrap() {
        Begun::Mine(tx) => {
            insert_charge(&tx);
            thread::sleep(Duration::from_millis(2));
            (true, Some(tx.complete(created()).unwrap()))
        }
        Begun::Replay(reply) => (false, Some(reply)),
        Begun::InProgress { .. } => (false, None),
        Begun::Reused => panic!("the same payload"),
    };
    (0..32).map(call).collect()
}
