//! Connections that would lose a commit, or commit without an answer.

use onlyonce::transaction::{Begun, TransactionError, Transactions};
use rusqlite::Connection;

use crate::lab::{Lab, charge, created, mine, replayed};

// R125
#[test]
fn a_connection_whose_commits_may_be_lost_is_refused() {
    for (journal, levels) in [
        ("wal", ["OFF", "NORMAL"].as_slice()),
        ("truncate", &["OFF", "NORMAL"]),
        ("persist", &["OFF", "NORMAL"]),
        ("delete", &["OFF", "NORMAL", "FULL"]),
        ("memory", &["OFF", "NORMAL", "FULL", "EXTRA"]),
        ("off", &["OFF", "NORMAL", "FULL", "EXTRA"]),
    ] {
        let lab = Lab::new();
        let mut db = lab.open();
        set(&db, "journal_mode", journal);
        for level in ["OFF", "NORMAL", "FULL", "EXTRA"] {
            set(&db, "synchronous", level);
            let begun = Transactions::new().begin_in(&mut db, &charge(level));
            let is_refused = matches!(begun, Err(TransactionError::Setting { .. }));
            assert_eq!(is_refused, levels.contains(&level), "{journal} {level}: {begun:?}");
            assert!(is_refused || matches!(begun, Ok(Begun::Mine(_))), "{begun:?}");
        }
    }
}

#[test]
fn a_file_that_is_only_in_memory_is_refused() {
    let mut db = Connection::open_in_memory().unwrap();
    Transactions::new().prepare(&db).unwrap();
    assert_refused(
        &mut db,
        "PRAGMA journal_mode is memory and must be WAL, DELETE, TRUNCATE or PERSIST",
    );
}

// R125
#[test]
fn a_connection_that_would_commit_without_an_answer_is_refused() {
    let lab = Lab::new();
    let mut db = lab.open();
    set(&db, "foreign_keys", "OFF");
    assert_refused(&mut db, "PRAGMA foreign_keys is 0 and must be ON");
    set(&db, "foreign_keys", "ON");
    let tx = mine(&mut db, &charge("k"));
    set(&tx, "foreign_keys", "OFF");
    tx.execute_batch("COMMIT").unwrap_err();
    drop(tx);
    assert_eq!(lab.number("SELECT count(*) FROM onlyonce_transactional"), 0);
}

#[test]
fn a_connection_that_reads_what_is_not_committed_is_refused() {
    let lab = Lab::new();
    let mut db = lab.open();
    set(&db, "read_uncommitted", "1");
    assert_refused(&mut db, "PRAGMA read_uncommitted is 1 and must be 0");
}

#[test]
fn a_setting_that_is_changed_on_an_open_connection_is_noticed() {
    let lab = Lab::new();
    let mut db = lab.open();
    mine(&mut db, &charge("first")).complete(created()).unwrap();
    set(&db, "synchronous", "OFF");
    assert_refused(&mut db, "PRAGMA synchronous is 0 and must be FULL or EXTRA");
    assert_eq!(replayed(&mut db, &charge("first")), created());
}

fn assert_refused(db: &mut Connection, why: &str) {
    let refused = Transactions::new().begin_in(db, &charge("k")).unwrap_err();
    assert_eq!(refused.to_string(), why);
    assert!(db.is_autocommit());
}

fn set(db: &Connection, pragma: &str, value: &str) {
    db.execute_batch(&format!("PRAGMA {pragma} = {value}")).unwrap();
}
