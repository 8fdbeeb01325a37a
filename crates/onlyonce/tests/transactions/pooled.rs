//! Behind a pooler that gives each transaction to another session.

use onlyonce::transaction::{Begun, TransactionError, Transactions};
use servers::Pgbouncer;
use sqlx::PgPool;
use tokio_postgres::NoTls;

use crate::lab::{CHARGE, Lab, charge, created, pool};

async fn charged(pool: &PgPool, key: &str) -> Result<(), TransactionError> {
    match Transactions::new().begin(pool, &charge(key)).await? {
        Begun::Mine(mut tx) => {
            // Not prepared: what a pooler does to the user's own statements is the user's to see.
            let work = sqlx::raw_sql(CHARGE).execute(&mut *tx).await;
            work.map_err(|error| TransactionError::NotDone(error.into()))?;
            tx.complete(created()).await.map(drop)
        }
        other => panic!("{other:?}"),
    }
}

/// pgbouncer before 1.21, or without `max_prepared_statements`: the session that gets a transaction does not know the statements
/// of its client. It is said, and nothing is done twice or by half.
// threat C8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_loses_prepared_statements_is_refused_by_name() {
    let lab = Lab::start().await;
    let pooler = Pgbouncer::start(&lab.postgres, "transaction");
    let url = pooler.url(&lab.url);
    let pools = [pool(&url, 1).await, pool(&url, 1).await];
    // Each connection counts its own statements: what is the first of one is the second of the other.
    sqlx::query("SELECT 1").execute(&pools[0]).await.unwrap();
    let (mut done, mut refused) = (0, 0);
    for number in 0..20 {
        // One session is at work when the next transaction begins, so that the pooler takes another one.
        let Begun::Mine(first) = (match Transactions::new().begin(&pools[0], &charge("first")).await
        {
            Ok(begun) => begun,
            Err(TransactionError::Pooled(_)) => {
                refused += 1;
                continue;
            }
            Err(error) => panic!("{error:?}"),
        }) else {
            panic!()
        };
        match charged(&pools[1], &format!("k{number}")).await {
            Ok(()) => done += 1,
            Err(TransactionError::Pooled(_)) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
        drop(first);
        match charged(&pools[number % 2], &format!("l{number}")).await {
            Ok(()) => done += 1,
            Err(error @ TransactionError::Pooled(_)) => {
                assert!(error.to_string().contains("pooler"), "{error}");
                refused += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
        assert_eq!(lab.charges(), done.to_string());
    }
    assert!(refused > 0, "{done} were done, and none refused");
}

/// tokio-postgres is asked to prepare nothing by name, so that every pooler will do.
// threat C8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_postgres_works_through_a_pooler_in_transaction_mode() {
    let lab = Lab::start().await;
    let pooler = Pgbouncer::start(&lab.postgres, "transaction");
    let connect = async || {
        let connected = tokio_postgres::connect(&pooler.url(&lab.url), NoTls).await;
        let (client, connection) = connected.unwrap();
        tokio::spawn(connection);
        client
    };
    let (mut one, mut other, transactions) =
        (connect().await, connect().await, Transactions::new());
    for number in 0..10 {
        let (first, second) = (charge(&format!("a{number}")), charge(&format!("b{number}")));
        let Begun::Mine(first) = transactions.begin_on(&mut one, &first).await.unwrap() else {
            panic!()
        };
        let Begun::Mine(second) = transactions.begin_on(&mut other, &second).await.unwrap() else {
            panic!()
        };
        first.batch_execute(CHARGE).await.unwrap();
        second.batch_execute(CHARGE).await.unwrap();
        first.complete(created()).await.unwrap();
        second.decline(created()).await.unwrap();
        std::mem::swap(&mut one, &mut other);
    }
    assert_eq!(lab.charges(), "10");
}
