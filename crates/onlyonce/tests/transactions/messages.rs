//! Several statements in one message, sent before the first of them is answered.

use http::StatusCode;
use onlyonce::transaction::{Begun, Reply, TransactionError, Transactions};
use tokio_postgres::{Client, NoTls};

use crate::lab::{CHARGE, Lab, charge, created};

/// A transaction in one message, as docs/transactions.md has it.
const WHOLE: &str = "
    BEGIN;
    SELECT outcome FROM onlyonce.begin('s', 'p', 'k', '\\x01');
    INSERT INTO charge (amount) VALUES (7998);
    SELECT onlyonce.complete(onlyonce.operation_id('s', 'p', 'k'), 201, '{}', 'done');
    COMMIT";

async fn session(lab: &Lab) -> Client {
    let (client, connection) = tokio_postgres::connect(&lab.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn state_of(client: &Client, statements: &str) -> String {
    let error = client.batch_execute(statements).await.unwrap_err();
    client.batch_execute("ROLLBACK").await.unwrap();
    error.code().unwrap().code().to_owned()
}

#[tokio::test]
async fn a_whole_operation_in_one_message_is_done_once() {
    let lab = Lab::start().await;
    let client = session(&lab).await;
    client.batch_execute(WHOLE).await.unwrap();
    assert_eq!(state_of(&client, WHOLE).await, "OO004", "a replay");
    let reused = WHOLE.replace("\\x01", "\\x02");
    assert_eq!(state_of(&client, &reused).await, "OO004", "another fingerprint");
    assert_eq!(lab.charges(), "1");
}

#[tokio::test]
async fn a_whole_operation_in_one_message_is_undone_while_another_is_at_it() {
    let lab = Lab::start().await;
    let (first, second) = (session(&lab).await, session(&lab).await);
    let begun = WHOLE.split("INSERT").next().unwrap();
    first.batch_execute(begun).await.unwrap();
    assert_eq!(state_of(&second, WHOLE).await, "OO004");
    first.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(lab.charges(), "0");
    second.batch_execute(WHOLE).await.unwrap();
    assert_eq!(lab.charges(), "1");
}

/// The COMMIT behind a `complete` that fails must not keep the work.
#[tokio::test]
async fn an_answer_that_the_database_refuses_commits_nothing() {
    let lab = Lab::start().await;
    let (mut client, transactions) = (session(&lab).await, Transactions::new());
    let impossible = Reply::new(StatusCode::from_u16(999).unwrap(), "charged");
    let refused = match transactions.begin_on(&mut client, &charge("k")).await.unwrap() {
        Begun::Mine(tx) => {
            tx.batch_execute(CHARGE).await.unwrap();
            tx.complete(impossible).await
        }
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused, Err(TransactionError::NotDone(_))), "{refused:?}");
    assert_eq!(lab.charges(), "0");
    // The key is free, and the connection has no transaction left.
    let Begun::Mine(tx) = transactions.begin_on(&mut client, &charge("k")).await.unwrap() else {
        panic!("the key is free")
    };
    tx.batch_execute(CHARGE).await.unwrap();
    assert_eq!(tx.complete(created()).await.unwrap(), created());
    client.batch_execute(CHARGE).await.unwrap();
    assert_eq!(lab.charges(), "2");
}
