//! Through tokio-postgres.

use http::StatusCode;
use onlyonce::transaction::{Begun, PgTx, Reply, TransactionError, Transactions};
use tokio_postgres::{Client, NoTls};

use crate::lab::{CHARGE, Lab, charge, created};

async fn session(lab: &Lab) -> Client {
    let (client, connection) = tokio_postgres::connect(&lab.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn mine<'a>(transactions: &Transactions, client: &'a mut Client) -> PgTx<'a> {
    match transactions.begin_on(client, &charge("k")).await.unwrap() {
        Begun::Mine(tx) => tx,
        other => panic!("{other:?}"),
    }
}

// R125, R126
#[tokio::test]
async fn an_operation_runs_once_and_its_answer_is_replayed() {
    let lab = Lab::start().await;
    let (mut client, transactions) = (session(&lab).await, Transactions::new());
    let tx = mine(&transactions, &mut client).await;
    tx.batch_execute(CHARGE).await.unwrap();
    tx.outbox("charges", None, b"paid").await.unwrap();
    tx.complete(created()).await.unwrap();
    let again = transactions.begin_on(&mut client, &charge("k")).await.unwrap();
    assert!(matches!(again, Begun::Replay(reply) if reply == created()));
    assert_eq!(lab.charges(), "1");
    assert_eq!(lab.sql("SELECT count(*) FROM onlyonce.outbox"), "1");
}

#[tokio::test]
async fn a_declined_operation_keeps_its_answer_and_not_its_writes() {
    let lab = Lab::start().await;
    let (mut client, transactions) = (session(&lab).await, Transactions::new());
    let refusal = Reply::new(StatusCode::PAYMENT_REQUIRED, "no money");
    let tx = mine(&transactions, &mut client).await;
    tx.batch_execute(CHARGE).await.unwrap();
    // An error of the work is undone too.
    assert!(tx.batch_execute("SELECT 1 / 0").await.is_err());
    tx.decline(refusal.clone()).await.unwrap();
    let again = transactions.begin_on(&mut client, &charge("k")).await.unwrap();
    assert!(matches!(again, Begun::Replay(reply) if reply == refusal));
    assert_eq!(lab.charges(), "0");
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_and_work_cannot_commit_by_itself() {
    let lab = Lab::start().await;
    let (mut client, transactions) = (session(&lab).await, Transactions::new());
    let tx = mine(&transactions, &mut client).await;
    tx.batch_execute(CHARGE).await.unwrap();
    drop(tx);
    let tx = mine(&transactions, &mut client).await;
    tx.batch_execute(CHARGE).await.unwrap();
    assert!(tx.batch_execute("COMMIT").await.is_err());
    let ended = tx.complete(created()).await;
    assert!(matches!(ended, Err(TransactionError::EndedByWork(_))), "{ended:?}");
    assert_eq!(lab.charges(), "0");
}
