//! Files without the tables, or with those of another version.

use onlyonce::transaction::{TransactionError, Transactions};
use rusqlite::Connection;

use crate::lab::{Lab, WAL, charge, created, insert_charge, mine, open, replayed};

#[test]
fn missing_tables_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = open(&directory.path().join("empty.db"), WAL);
    assert_not_installed(&mut db);
    let tx = db.transaction().unwrap();
    let missing = Transactions::new().is_first_delivery_in(&tx, "mailer", "m1");
    assert!(matches!(missing, Err(TransactionError::NotInstalled(_))), "{missing:?}");
}

#[test]
fn a_table_that_was_dropped_is_named() {
    let lab = Lab::new();
    let mut db = lab.open();
    db.execute_batch("DROP TABLE onlyonce_outbox").unwrap();
    let missing = mine(&mut db, &charge("k")).outbox("charges", None, b"");
    assert!(matches!(missing, Err(TransactionError::NotInstalled(_))), "{missing:?}");
    db.execute_batch("DROP TABLE onlyonce_transactional").unwrap();
    assert_not_installed(&mut db);
}

#[test]
fn tables_of_another_version_are_refused() {
    let lab = Lab::new();
    let (mut db, transactions) = (lab.open(), Transactions::new());
    for other in ["UPDATE onlyonce_schema SET version = 2", "DELETE FROM onlyonce_schema"] {
        db.execute_batch(other).unwrap();
        assert_other(transactions.begin_in(&mut db, &charge("k")));
        assert_other(transactions.prepare(&db));
        let tx = db.transaction().unwrap();
        assert_other(transactions.is_first_delivery_in(&tx, "mailer", "m1"));
    }
}

#[test]
fn preparing_again_keeps_what_is_there() {
    let lab = Lab::new();
    let mut db = lab.open();
    mine(&mut db, &charge("k")).complete(created()).unwrap();
    Transactions::new().prepare(&db).unwrap();
    assert_eq!(replayed(&mut db, &charge("k")), created());
}

#[test]
fn a_table_of_the_same_name_is_not_taken_for_ours() {
    let directory = tempfile::tempdir().unwrap();
    let mut db = open(&directory.path().join("other.db"), WAL);
    db.execute_batch("CREATE TABLE onlyonce_outbox (id)").unwrap();
    let refused = Transactions::new().prepare(&db);
    assert!(matches!(refused, Err(TransactionError::NotDone(_))), "{refused:?}");
    assert_not_installed(&mut db);
}

#[test]
fn the_tables_restate_the_rules() {
    let lab = Lab::new();
    let mut db = lab.open();
    mine(&mut db, &charge("k")).complete(created()).unwrap();
    for wrong in [
        "UPDATE onlyonce_transactional SET body = NULL",
        "UPDATE onlyonce_transactional SET status = 99",
        "UPDATE onlyonce_transactional SET headers = '[]'",
        "UPDATE onlyonce_transactional SET unanswered = 1",
        "UPDATE onlyonce_transactional SET status = NULL, headers = NULL, body = NULL, expires_at = NULL",
        "INSERT INTO onlyonce_nothing VALUES (1)",
        "INSERT INTO onlyonce_nothing VALUES (NULL)",
        "INSERT INTO onlyonce_schema VALUES (2, 2)",
    ] {
        assert!(db.execute_batch(wrong).is_err(), "{wrong}");
    }
}

/// Another program may have done it, with foreign keys off.
// threat K18
#[test]
fn an_operation_that_was_committed_without_an_answer_is_not_run_again() {
    let lab = Lab::new();
    let mut db = lab.open();
    db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    mine_of_another_program(&db, &lab);
    db.execute_batch("PRAGMA foreign_keys = ON").unwrap();
    let refused = Transactions::new().begin_in(&mut db, &charge("k"));
    assert!(matches!(refused, Err(TransactionError::WithoutAnswer(_))), "{refused:?}");
}

/// SQLite counts the broken references of a transaction, and every orphan that is deleted is one less. So a COMMIT of the work
/// may pass; the row that it leaves tells.
// threat K18
#[test]
fn a_commit_of_the_work_that_orphans_let_pass_is_told_and_not_run_again() {
    let lab = Lab::new();
    let mut db = lab.open();
    db.execute_batch(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);
         PRAGMA foreign_keys = OFF; INSERT INTO child VALUES (1); PRAGMA foreign_keys = ON",
    )
    .unwrap();
    let tx = mine(&mut db, &charge("k"));
    tx.execute("DELETE FROM child", []).unwrap();
    insert_charge(&tx);
    tx.execute_batch("COMMIT").unwrap();
    let ended = tx.complete(created());
    assert!(matches!(ended, Err(TransactionError::EndedByWork(_))), "{ended:?}");
    let again = Transactions::new().begin_in(&mut db, &charge("k"));
    assert!(matches!(again, Err(TransactionError::WithoutAnswer(_))), "{again:?}");
    assert_eq!(lab.charges(), 1);
}

/// A row as `begin_in` writes it, committed.
fn mine_of_another_program(db: &Connection, lab: &Lab) {
    let mut ours = lab.open();
    let tx = mine(&mut ours, &charge("k"));
    let id = tx.operation_id().to_owned();
    drop(tx);
    let insert = "INSERT INTO onlyonce_transactional
        (id, scope, principal, key, fingerprint, begun_at, unanswered)
        VALUES (?1, 'POST /charges', 'acct_1', 'k', x'01', 1, 1)";
    db.execute(insert, [id]).unwrap();
}

fn assert_not_installed(db: &mut Connection) {
    let missing = Transactions::new().begin_in(db, &charge("k"));
    assert!(matches!(missing, Err(TransactionError::NotInstalled(_))), "{missing:?}");
}

fn assert_other<T: std::fmt::Debug>(other: Result<T, TransactionError>) {
    assert!(matches!(other, Err(TransactionError::OtherVersion)), "{other:?}");
}
