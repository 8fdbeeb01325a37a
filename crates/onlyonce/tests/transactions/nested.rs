//! Work that leaves a nested transaction of sqlx open, which takes the COMMIT for itself.

use axum::Router;
use axum::routing::post;
use http::StatusCode;
use onlyonce::Policy;
use onlyonce::transaction::{Begun, TransactionError, Transactions, Tx};
use sqlx::{Connection, PgConnection};

use crate::lab::{CHARGE, Lab, charge, created};
use crate::layer::{BODY, caller, charge as request, send};

/// Charges in a nested transaction, and forgets it.
async fn forget_nested(connection: &mut PgConnection) {
    let mut nested = connection.begin().await.unwrap();
    sqlx::query(CHARGE).execute(&mut *nested).await.unwrap();
    std::mem::forget(nested);
}

/// Whether another transaction of the pool's only connection commits.
async fn is_clean(lab: &Lab, pool: &sqlx::PgPool) -> bool {
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("CREATE TABLE IF NOT EXISTS clean ()").execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    lab.sql("SELECT to_regclass('public.clean') IS NOT NULL") == "t"
}

// threat K21
#[tokio::test]
async fn a_nested_transaction_that_was_forgotten_is_no_success_and_leaves_the_pool_clean() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    for end in ["complete", "decline", "drop"] {
        let Begun::Mine(mut tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else {
            panic!("{end}")
        };
        forget_nested(&mut tx).await;
        match end {
            "complete" => {
                let ended = tx.complete(created()).await;
                assert!(matches!(ended, Err(TransactionError::NotDone(_))), "{ended:?}");
            }
            "decline" => {
                tx.decline(created()).await.unwrap();
                lab.sql("DELETE FROM onlyonce.transactional");
            }
            _ => drop(tx),
        }
        assert!(is_clean(&lab, &pool).await, "{end}");
        assert_eq!(lab.charges(), "0", "{end}");
    }
    let Begun::Mine(tx) = transactions.begin(&pool, &charge("k")).await.unwrap() else { panic!() };
    tx.complete(created()).await.unwrap();
}

// threat K21
#[tokio::test]
async fn a_consumer_that_forgets_a_nested_transaction_has_not_consumed() {
    let lab = Lab::start().await;
    let (pool, transactions) = (lab.pool(1).await, Transactions::new());
    let work = async |connection: &mut PgConnection| -> Result<(), sqlx::Error> {
        forget_nested(connection).await;
        Ok(())
    };
    let consumed = transactions.consume(&pool, "mailer", "m1", work).await;
    assert!(matches!(consumed, Err(TransactionError::NotDone(_))), "{consumed:?}");
    assert!(is_clean(&lab, &pool).await);
    assert_eq!(lab.charges(), "0");
}

// threat K21
#[tokio::test]
async fn a_handler_that_forgets_a_nested_transaction_is_no_success() {
    let lab = Lab::start().await;
    let pool = lab.pool(1).await;
    for status in [StatusCode::CREATED, StatusCode::NOT_FOUND, StatusCode::UNAUTHORIZED] {
        let handler = async move |mut tx: Tx| {
            forget_nested(&mut tx).await;
            status
        };
        let layer = Transactions::new().layer(pool.clone(), caller, Policy::default());
        let app = Router::new().route("/charges", post(handler)).layer(layer);
        let answer = send(app, request(status.as_str(), BODY)).await;
        if status == StatusCode::CREATED {
            let told = (answer.status.as_u16(), answer.code());
            assert_eq!(told, (500, "idempotency_rolled_back".to_owned()), "{answer:?}");
        }
        assert!(is_clean(&lab, &pool).await, "{status}");
        assert_eq!(lab.charges(), "0", "{status}");
    }
}
