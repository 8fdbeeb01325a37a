//! Files that are not what was written: refused, or unreadable key by key, and never empty.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rusqlite::Connection;

use super::*;
use crate::store::sqlite::SqliteOpenError;
use crate::store::{Fault, StoreError};

/// A closed store with `count` settled records and one unknown one.
async fn closed(count: u32) -> (TempDir, PathBuf, TestClock) {
    let lab = Lab::new().await;
    futures_util::future::join_all((0..count).map(|n| lab.settled(n))).await;
    lab.unknown(count).await;
    lab.store.close().await;
    let path = lab.path();
    (lab.directory, path, lab.clock)
}

// threat E5
#[tokio::test]
async fn a_flipped_byte_never_makes_a_completed_key_absent_or_its_answer_another() {
    const COUNT: u32 = 60;
    let (_directory, path, clock) = closed(COUNT).await;
    let sound = fs::read(&path).unwrap();
    let (mut refused, mut unreadable, mut correct) = (0, 0, 0);
    for at in offsets(sound.len()) {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        fs::write(&path, &flipped).unwrap();
        let store = match open(&path, &clock).await {
            Ok(store) => store,
            Err(SqliteOpenError::InUse { .. }) => panic!("the last one was closed"),
            Err(_) => {
                refused += 1;
                continue;
            }
        };
        for n in 0..COUNT {
            match store.load(id(n)).await {
                Ok(seen) => {
                    assert_eq!(answer(&seen), Some(&response(n)), "byte {at}, key {n}");
                    correct += 1;
                }
                Err(Fault::NotDone(StoreError::Unreadable(_))) => unreadable += 1,
                Err(other) => panic!("byte {at}, key {n}: {other:?}"),
            }
        }
        assert!(
            store.load(id(COUNT)).await.is_err_and(is_unreadable)
                || is_unknown(&store, COUNT).await
        );
        store.close().await;
    }
    assert!(refused > 5 && unreadable > 5 && correct > 1000, "{refused} {unreadable} {correct}");
}

/// Every 512 bytes, at a place that differs from block to block, and all of the first page's header.
fn offsets(length: usize) -> impl Iterator<Item = usize> {
    let spread = (0..length).step_by(512).map(|block| block + (block / 512 * 131) % 512);
    (0..100).chain(spread)
}

fn is_unreadable(fault: Fault) -> bool {
    matches!(fault, Fault::NotDone(StoreError::Unreadable(_)))
}

async fn is_unknown(store: &SqliteStore, n: u32) -> bool {
    let seen = store.load(id(n)).await;
    seen.is_ok_and(|seen| {
        seen.record.is_some_and(|record| record.state.kind() == StateKind::Unknown)
    })
}

// threat E5
#[tokio::test]
async fn a_damaged_record_is_an_error_for_its_key_alone() {
    let (_directory, path, clock) = closed(10).await;
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE record_27 SET key = 'other' WHERE row = 4; UPDATE response_27 SET body = x'00' WHERE row = 6")
        .unwrap();
    drop(db);
    let store = open(&path, &clock).await.unwrap();
    for n in 0..10 {
        let seen = store.load(id(n)).await;
        match n {
            3 | 5 => {
                assert!(seen.is_err_and(is_unreadable));
                assert!(store.claim(draft(n)).await.is_err_and(is_unreadable));
                let swap = store.swap(id(n), owner(Token::random()), settle(n));
                assert!(swap.await.is_err_and(is_unreadable));
            }
            _ => assert_eq!(answer(&seen.unwrap()), Some(&response(n))),
        }
    }
}

// threat E5
#[tokio::test]
async fn a_sweep_keeps_a_record_that_it_cannot_read() {
    let (_directory, path, clock) = closed(10).await;
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE record_27 SET expires_at = 5 WHERE row = 4").unwrap();
    drop(db);
    let store = open(&path, &clock).await.unwrap();
    assert_eq!(store.sweep(clock.wall(), 100).await.unwrap().deleted, 0);
    clock.advance(TTL_MS);
    assert_eq!(store.sweep(clock.wall(), 100).await.unwrap().deleted, 9);
    assert!(store.load(id(3)).await.is_err_and(is_unreadable));
    store.close().await;
    let store = open(&path, &clock).await.unwrap();
    assert!(store.load(id(3)).await.is_err_and(is_unreadable));
}

// threat E5
#[tokio::test]
async fn a_row_that_vanished_is_noticed_at_either_end_and_between() {
    for row in [1, 5, 11] {
        let (_directory, path, clock) = closed(10).await;
        let db = Connection::open(&path).unwrap();
        db.execute("DELETE FROM record_27 WHERE row = ?1", [row]).unwrap();
        drop(db);
        assert!(
            matches!(open(&path, &clock).await, Err(SqliteOpenError::Damaged { .. })),
            "row {row}"
        );
    }
}

// threat E5
#[tokio::test]
async fn a_table_that_vanished_or_changed_is_noticed() {
    let changes = [
        "DROP TABLE record_27",
        "DROP TABLE response_27",
        "DELETE FROM meta",
        "DELETE FROM route",
        "UPDATE meta SET classes = ''",
        "CREATE TABLE record_28 (row INTEGER PRIMARY KEY)",
        "ALTER TABLE record_27 ADD COLUMN more TEXT",
    ];
    for change in changes {
        let (_directory, path, clock) = closed(3).await;
        let db = Connection::open(&path).unwrap();
        db.execute_batch(change).unwrap();
        drop(db);
        let opened = open(&path, &clock).await;
        let unread = match &opened {
            Ok(store) => store.load(id(1)).await.is_err_and(is_unreadable),
            Err(error) => matches!(error, SqliteOpenError::Damaged { .. }),
        };
        assert!(unread, "{change}: {opened:?}");
    }
}

// threat E5
#[tokio::test]
async fn a_file_cut_short_is_refused_wherever_it_is_cut() {
    let (_directory, path, clock) = closed(200).await;
    let sound = fs::read(&path).unwrap();
    for kept in (0..sound.len()).step_by(4096 + 512) {
        fs::write(&path, &sound[..kept]).unwrap();
        let error = open(&path, &clock).await.unwrap_err();
        let refused =
            matches!(error, SqliteOpenError::Empty { .. } | SqliteOpenError::Damaged { .. });
        assert!(refused, "cut at {kept}: {error}");
        assert_eq!(fs::read(&path).unwrap(), sound[..kept]);
    }
}

// threat E5
#[tokio::test]
async fn a_log_cut_short_loses_its_end_and_nothing_else() {
    let lab = Lab::new().await;
    for n in 0..40 {
        lab.settled(n).await;
    }
    let (db, wal) = (
        fs::read(lab.path()).unwrap(),
        fs::read(lab.directory.path().join("store.db-wal")).unwrap(),
    );
    let copy = lab.directory.path().join("copy.db");
    for cut in (0..wal.len()).step_by(wal.len() / 23) {
        fs::write(&copy, &db).unwrap();
        fs::write(lab.directory.path().join("copy.db-wal"), &wal[..cut]).unwrap();
        let store = open(&copy, &lab.clock).await.unwrap();
        let mut ended = false;
        for n in 0..40 {
            let seen = store.load(id(n)).await.unwrap();
            let there = seen.record.as_ref().is_some_and(|record| record.response().is_some());
            assert!(!(there && ended), "cut at {cut}: {n} is there and an earlier one is not");
            ended |= !there;
            assert!(!there || answer(&seen) == Some(&response(n)));
        }
        store.close().await;
    }
}

// threat E5
#[tokio::test]
async fn a_flipped_byte_in_the_log_costs_at_most_its_last_transaction() {
    const COUNT: u32 = 30;
    let lab = Lab::new().await;
    for n in 0..COUNT {
        lab.settled(n).await;
    }
    let (db, wal) = (
        fs::read(lab.path()).unwrap(),
        fs::read(lab.directory.path().join("store.db-wal")).unwrap(),
    );
    let copy = lab.directory.path().join("copy.db");
    let mut refused = 0;
    for at in (0..wal.len()).step_by(wal.len() / 61) {
        let mut flipped = wal.clone();
        flipped[at] ^= 4;
        fs::write(&copy, &db).unwrap();
        fs::write(lab.directory.path().join("copy.db-wal"), &flipped).unwrap();
        let store = match open(&copy, &lab.clock).await {
            Ok(store) => store,
            Err(SqliteOpenError::Damaged { .. }) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("byte {at}: {other}"),
        };
        for n in 0..COUNT - 1 {
            let seen = store.load(id(n)).await.unwrap();
            assert_eq!(answer(&seen), Some(&response(n)), "byte {at}, key {n}");
        }
        store.close().await;
    }
    assert!(refused > 40, "{refused}");
}

#[tokio::test]
async fn an_empty_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    fs::write(&path, "").unwrap();
    let error = open(&path, &TestClock::default()).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::Empty { .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_vanished_is_not_made_anew() {
    let (_directory, path, clock) = closed(1).await;
    fs::remove_file(&path).unwrap();
    assert!(matches!(open(&path, &clock).await, Err(SqliteOpenError::Gone { .. })));
    assert!(!path.exists());
    let other = path.with_file_name("other.db");
    fs::write(path.with_file_name("other.db-wal"), "log").unwrap();
    assert!(matches!(open(&other, &clock).await, Err(SqliteOpenError::Gone { .. })));
}

#[tokio::test]
async fn a_first_open_that_died_half_way_is_simply_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    fs::write(directory.path().join("store.db-lock"), "").unwrap();
    fs::write(directory.path().join("store.db-new"), "half").unwrap();
    open(&path, &TestClock::default()).await.unwrap();
}

#[tokio::test]
async fn what_is_not_ours_is_refused_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (text, foreign) = (directory.path().join("text"), directory.path().join("foreign.db"));
    fs::write(&text, "not a database ".repeat(100)).unwrap();
    Connection::open(&foreign)
        .unwrap()
        .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        .unwrap();
    for path in [text, foreign] {
        let before = fs::read(&path).unwrap();
        let error = open(&path, &TestClock::default()).await.unwrap_err();
        assert!(matches!(error, SqliteOpenError::NotOurs { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let (_directory, path, clock) = closed(1).await;
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 5").unwrap();
    let error = open(&path, &clock).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::Newer { found: 5, supported: 4, .. }), "{error}");
}

// threat C13
#[tokio::test]
async fn a_file_of_an_older_format_is_refused_and_left_as_it_was() {
    for (found, make) in
        [(1, make_first_format as fn(&Path)), (2, make_second_format), (3, make_third_format)]
    {
        let (directory, path, clock) = closed(1).await;
        make(&path);
        let before = files(directory.path());
        for _ in 0..2 {
            let error = open(&path, &clock).await.unwrap_err();
            let path = fs::canonicalize(&path).unwrap();
            let told = format!(
                "{} has format {found} of an unreleased build, and this build reads only format 4: \
                 use a new file. Retries of keys in the old one will be executed again",
                path.display()
            );
            assert_eq!(error.to_string(), told);
            let is_older = matches!(error, SqliteOpenError::Older { found: is, supported: 4, .. } if is == found);
            assert!(is_older, "{error:?}");
        }
        assert_eq!(files(directory.path()), before);
    }
}

/// The third format had no audit trail.
fn make_third_format(path: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch("DROP TABLE audit; DROP TABLE audit_head; PRAGMA user_version = 3").unwrap();
}

/// The first format had neither targets nor check values.
fn make_first_format(path: &Path) {
    make_second_format(path);
    let db = Connection::open(path).unwrap();
    let mut tables =
        db.prepare("SELECT name FROM sqlite_schema WHERE name LIKE 'record_%'").unwrap();
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(!tables.is_empty());
    for table in tables {
        db.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN target")).unwrap();
    }
    db.execute_batch("DROP TABLE check_value; PRAGMA user_version = 1").unwrap();
}

/// The second format kept the highest time that was told, and whether the clock was held.
fn make_second_format(path: &Path) {
    let sql = "ALTER TABLE meta ADD COLUMN highest INTEGER NOT NULL DEFAULT 1;
               ALTER TABLE meta ADD COLUMN clock_held INTEGER NOT NULL DEFAULT 0;
               PRAGMA user_version = 2";
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Every file and what it holds.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let found = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    found.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[tokio::test]
async fn a_file_without_a_format_is_damaged() {
    let (_directory, path, clock) = closed(1).await;
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 0").unwrap();
    let error = open(&path, &clock).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_damaged_check_value_is_an_error_and_never_absent() {
    let (_directory, path, clock) = closed(1).await;
    let store = open(&path, &clock).await.unwrap();
    store.check_value("secret", None, Some("one")).await.unwrap();
    store.check_value("scope", None, Some("two")).await.unwrap();
    store.close().await;
    let damage = "UPDATE check_value SET value = 'onf' WHERE name = 'secret'";
    Connection::open(&path).unwrap().execute_batch(damage).unwrap();
    let store = open(&path, &clock).await.unwrap();
    for to in [None, Some("three")] {
        let fault = store.check_value("secret", None, to).await.unwrap_err();
        assert!(matches!(fault, Fault::NotDone(StoreError::Unreadable(_))), "{fault:?}");
    }
    let kept = store.check_value("scope", None, None).await.unwrap();
    assert_eq!(kept.as_deref(), Some("two"));
}

#[tokio::test]
async fn a_moved_store_takes_nothing_more_and_is_refused_afterwards() {
    let lab = Lab::new().await;
    lab.settled(1).await;
    lab.store.mark_moved("postgres://ledger").await.unwrap();
    lab.store.mark_moved("postgres://ledger").await.unwrap();
    let late = lab.store.claim(draft(2)).await;
    assert!(matches!(late, Err(Fault::NotDone(StoreError::Closed))), "{late:?}");
    lab.store.close().await;
    let error = open(&lab.path(), &lab.clock).await.unwrap_err();
    assert!(
        matches!(&error, SqliteOpenError::Moved { to, .. } if to == "postgres://ledger"),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("no/such/store.db");
    let error = open(&path, &TestClock::default()).await.unwrap_err();
    assert!(matches!(error, SqliteOpenError::NoDirectory { .. }), "{error}");
}

#[tokio::test]
async fn the_schema_refuses_what_the_states_forbid() {
    let (_directory, path, _) = closed(1).await;
    let db = Connection::open(&path).unwrap();
    let wrong = [
        "state = 2",
        "state = 9",
        "expires_at = NULL",
        "lease_until = 1",
        "unknown_since = 1",
        "settled_by = NULL",
        "settled_by = 5",
        "taken_from = 3",
        "count = 0",
        "id = x'00'",
    ];
    for wrong in wrong {
        let changed = db.execute_batch(&format!("UPDATE record_27 SET {wrong} WHERE row = 1"));
        assert!(changed.is_err(), "{wrong}");
    }
}
