//! One operation and what becomes of it.

use http::{HeaderValue, StatusCode, header};
use onlyonce::transaction::{Begun, Reply, TransactionError, Transactions};

use crate::lab::{Lab, charge, created, insert_charge, mine, replayed};

// R125, R126
#[test]
fn an_operation_runs_once_and_its_answer_is_replayed() {
    let lab = Lab::new();
    let mut db = lab.open();
    let answer = created().with_header(header::LOCATION, HeaderValue::from_static("/charges/1"));
    let tx = mine(&mut db, &charge("k"));
    insert_charge(&tx);
    assert_eq!(tx.complete(answer.clone()).unwrap(), answer);
    assert_eq!(replayed(&mut db, &charge("k")), answer);
    assert_eq!(replayed(&mut lab.open(), &charge("k")), answer);
    let other = charge("k").with_payload(&1).unwrap();
    let reused = Transactions::new().begin_in(&mut db, &other).unwrap();
    assert!(matches!(reused, Begun::Reused), "{reused:?}");
    assert_eq!(lab.charges(), 1);
}

// R126
#[test]
fn a_dropped_transaction_leaves_no_trace_and_the_key_is_free() {
    let lab = Lab::new();
    let mut db = lab.open();
    for _ in 0..3 {
        let tx = mine(&mut db, &charge("k"));
        insert_charge(&tx);
        tx.outbox("charges", None, b"paid").unwrap();
        drop(tx);
        assert!(db.is_autocommit());
    }
    assert_eq!(lab.charges(), 0);
    assert_eq!(lab.number("SELECT count(*) FROM onlyonce_transactional"), 0);
    assert_eq!(lab.number("SELECT count(*) FROM onlyonce_outbox"), 0);
}

// R125
#[test]
fn a_declined_operation_keeps_its_answer_and_not_its_writes() {
    let lab = Lab::new();
    let mut db = lab.open();
    let refusal = Reply::new(StatusCode::PAYMENT_REQUIRED, "no money");
    let tx = mine(&mut db, &charge("k"));
    insert_charge(&tx);
    tx.outbox("charges", Some("acct_1"), b"paid").unwrap();
    assert_eq!(tx.decline(refusal.clone()).unwrap(), refusal);
    assert_eq!(replayed(&mut db, &charge("k")), refusal);
    assert_eq!(lab.charges(), 0);
    assert_eq!(lab.number("SELECT count(*) FROM onlyonce_outbox"), 0);
}

/// Begun anew, its row is deleted, and it is back when that is undone. It says nothing about the new attempt.
// threat K17
#[test]
fn an_answer_that_has_expired_is_told_to_nobody() {
    let lab = Lab::new();
    let mut db = lab.open();
    db.execute_batch(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .unwrap();
    mine(&mut db, &charge("k")).complete(created()).unwrap();
    db.execute_batch("UPDATE onlyonce_transactional SET expires_at = 1").unwrap();
    for _ in 0..2 {
        let tx = mine(&mut db, &charge("k"));
        insert_charge(&tx);
        tx.execute_batch("INSERT INTO child VALUES (1)").unwrap();
        let refused = tx.complete(created());
        assert!(matches!(refused, Err(TransactionError::NotDone(_))), "{refused:?}");
    }
    assert_eq!(lab.charges(), 0);
}

// R125
#[test]
fn messages_commit_with_the_operation_in_their_order() {
    let lab = Lab::new();
    let mut db = lab.open();
    let tx = mine(&mut db, &charge("k"));
    let first = tx.outbox("charges", Some("acct_1"), b"one").unwrap();
    let second = tx.outbox("charges", Some("acct_1"), b"two").unwrap();
    assert_ne!(first, second);
    let operation = tx.operation_id().to_owned();
    tx.complete(created()).unwrap();
    let mut read =
        db.prepare("SELECT id, operation FROM onlyonce_outbox ORDER BY position").unwrap();
    let rows = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let rows: Vec<(String, String)> = rows.map(Result::unwrap).collect();
    assert_eq!(rows, [(first, operation.clone()), (second, operation)]);
}

#[test]
fn an_operation_that_has_expired_runs_again() {
    let lab = Lab::new();
    let mut db = lab.open();
    for _ in 0..2 {
        let tx = mine(&mut db, &charge("k"));
        insert_charge(&tx);
        tx.complete(created()).unwrap();
        let is_kept = "SELECT expires_at - begun_at BETWEEN 86400000 AND 86500000
                         FROM onlyonce_transactional";
        assert_eq!(lab.number(is_kept), 1, "the default is a day");
        db.execute("UPDATE onlyonce_transactional SET expires_at = begun_at", []).unwrap();
    }
    assert_eq!(lab.charges(), 2);
}

/// The statements in docs/transactions.md.
#[test]
fn the_documented_sweep_deletes_what_has_expired_and_nothing_else() {
    let docs = include_str!("../../../../docs/transactions.md");
    let start = docs.find("DELETE FROM onlyonce_transactional").unwrap();
    let sweep = docs[start..].split("```").next().unwrap();
    let lab = Lab::new();
    let mut db = lab.open();
    for key in ["old", "new"] {
        mine(&mut db, &charge(key)).complete(created()).unwrap();
    }
    db.execute_batch(
        "UPDATE onlyonce_transactional SET expires_at = 1 WHERE key = 'old';
         INSERT INTO onlyonce_inbox VALUES ('mailer', 'old', (unixepoch() - 31 * 86400) * 1000),
           ('mailer', 'new', (unixepoch() - 29 * 86400) * 1000)",
    )
    .unwrap();
    db.execute_batch(sweep).unwrap();
    assert_eq!(replayed(&mut db, &charge("new")), created());
    assert_eq!(lab.number("SELECT count(*) FROM onlyonce_transactional"), 1);
    assert_eq!(lab.number("SELECT count(*) FROM onlyonce_inbox WHERE message_id = 'new'"), 1);
    assert_eq!(lab.number("SELECT count(*) FROM onlyonce_inbox"), 1);
}

// R125
#[test]
fn a_commit_of_the_work_is_refused() {
    let lab = Lab::new();
    let mut db = lab.open();
    let tx = mine(&mut db, &charge("k"));
    insert_charge(&tx);
    tx.execute_batch("COMMIT").unwrap_err();
    tx.execute_batch("RELEASE onlyonce_work; COMMIT").unwrap_err();
    drop(tx);
    assert_eq!(lab.charges(), 0);
    drop(mine(&mut db, &charge("k")));
}

#[test]
fn a_transaction_that_the_work_has_ended_is_noticed() {
    let lab = Lab::new();
    for ending in ["ROLLBACK", "ROLLBACK; BEGIN"] {
        let mut db = lab.open();
        let tx = mine(&mut db, &charge("k"));
        insert_charge(&tx);
        tx.execute_batch(ending).unwrap();
        assert_ended(tx.outbox("charges", None, b""));
        assert_ended(tx.complete(created()));
        let tx = mine(&mut db, &charge("k"));
        tx.execute_batch(ending).unwrap();
        assert_ended(tx.decline(created()));
        assert!(db.is_autocommit());
    }
    assert_eq!(lab.charges(), 0);
}

/// The limit that the docs name: SQLite commits such a statement by itself.
#[test]
fn what_the_work_writes_after_its_own_rollback_stays_and_is_noticed() {
    let lab = Lab::new();
    let mut db = lab.open();
    let tx = mine(&mut db, &charge("k"));
    tx.execute_batch("ROLLBACK").unwrap();
    insert_charge(&tx);
    assert_ended(tx.complete(created()));
    assert_eq!(lab.charges(), 1);
}

#[test]
fn an_open_transaction_of_the_caller_is_not_taken_over() {
    let lab = Lab::new();
    let mut db = lab.open();
    mine(&mut db, &charge("done")).complete(created()).unwrap();
    db.execute_batch("BEGIN").unwrap();
    for key in ["done", "new"] {
        let refused = Transactions::new().begin_in(&mut db, &charge(key));
        assert!(matches!(refused, Err(TransactionError::NotDone(_))), "{refused:?}");
    }
}

/// A broken reference of the caller's own tables.
#[test]
fn a_commit_that_is_refused_leaves_nothing_and_the_key_is_free() {
    let lab = Lab::new();
    let mut db = lab.open();
    db.execute_batch(
        "CREATE TABLE item (id INTEGER PRIMARY KEY,
           part_of INTEGER REFERENCES item (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .unwrap();
    let tx = mine(&mut db, &charge("k"));
    insert_charge(&tx);
    tx.execute("INSERT INTO item (part_of) VALUES (4711)", []).unwrap();
    let refused = tx.complete(created());
    assert!(matches!(refused, Err(TransactionError::NotDone(_))), "{refused:?}");
    assert_eq!(lab.charges(), 0);
    mine(&mut db, &charge("k")).complete(created()).unwrap();
}

// R140
#[test]
fn a_second_delivery_of_a_message_has_no_effect() {
    let lab = Lab::new();
    let (mut db, transactions) = (lab.open(), Transactions::new());
    let mut deliver = |is_committed: bool| {
        let tx = db.transaction().unwrap();
        let is_first = transactions.is_first_delivery_in(&tx, "mailer", "m1").unwrap();
        if is_committed {
            tx.commit().unwrap();
        }
        is_first
    };
    let seen = [deliver(false), deliver(true), deliver(true)];
    assert_eq!(seen, [true, true, false]);
    let tx = mine(&mut db, &charge("k"));
    assert!(transactions.is_first_delivery_in(&tx, "printer", "m1").unwrap());
    tx.execute_batch("ROLLBACK").unwrap();
    assert_ended(transactions.is_first_delivery_in(&tx, "printer", "m1"));
}

fn assert_ended<T: std::fmt::Debug>(ended: Result<T, TransactionError>) {
    assert!(matches!(ended, Err(TransactionError::EndedByWork(_))), "{ended:?}");
}
