//! Files that are no outbox, and messages that do not fit.

use std::fs;

use onlyonce::outbox::{OutboxFileError, Parked, Relay};
use onlyonce::transaction::TransactionError;
use rusqlite::Connection;

use crate::book::Book;
use crate::lab::{COUNT, Lab, begin};

async fn refused(path: &std::path::Path) -> OutboxFileError {
    let relay = Relay::open_sqlite(path, Book::taking()).await.err().unwrap();
    let parked = Parked::open_sqlite(path).await.unwrap_err();
    assert_eq!(relay.to_string(), parked.to_string());
    relay
}

#[tokio::test]
async fn a_file_without_the_tables_of_this_version_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    assert!(matches!(refused(&file("none")).await, OutboxFileError::NotOpened { .. }));
    assert!(!file("none").exists(), "it was made");
    fs::write(file("text"), "this is not a database, and long enough to be told apart from one")
        .unwrap();
    assert!(matches!(refused(&file("text")).await, OutboxFileError::NotOpened { .. }));
    Connection::open(file("empty")).unwrap().execute_batch("CREATE TABLE mine (id)").unwrap();
    assert!(matches!(refused(&file("empty")).await, OutboxFileError::NoTables { .. }));
    let lab = Lab::new();
    lab.sql("UPDATE onlyonce_schema SET version = 2");
    assert!(matches!(refused(&lab.path()).await, OutboxFileError::OtherVersion { .. }));
}

// The same bounds as in Postgres: what no relay could ship is refused where it is added.
#[test]
fn a_message_that_is_too_large_fails_its_transaction() {
    let lab = Lab::new();
    let mut db = lab.open();
    let (long_topic, long_key) = ("t".repeat(256), "k".repeat(1_025));
    let large = vec![0; 1_048_577];
    let messages: [(&str, Option<&str>, &[u8]); 4] = [
        ("", None, b""),
        (&long_topic, None, b""),
        ("t", Some(&long_key), b""),
        ("t", None, &large),
    ];
    for (topic, key, payload) in messages {
        let added = begin(&mut db).outbox(topic, key, payload);
        assert!(matches!(added, Err(TransactionError::NotDone(_))), "{added:?}");
    }
    let tx = begin(&mut db);
    tx.outbox(&long_topic[1..], Some(&long_key[1..]), &large[1..]).unwrap();
    tx.complete(onlyonce::transaction::Reply::new(http::StatusCode::OK, "done")).unwrap();
    assert_eq!(lab.row(COUNT), "1");
}
