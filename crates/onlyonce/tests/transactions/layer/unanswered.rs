//! Operations of which nobody can say that nothing was done.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::State;
use http::StatusCode;
use onlyonce::Policy;
use onlyonce::transaction::Tx;
use sqlx::PgPool;

use super::{BODY, Shop, insert};
use crate::lab::Lab;

type Runs = State<Arc<AtomicUsize>>;

/// It may have been done: somebody has switched the check off, or written to the row.
// threat K18
#[tokio::test]
async fn an_operation_that_was_committed_without_an_answer_is_unknown() {
    let handler = async |mut tx: Tx, State(runs): Runs| {
        insert(&mut tx, &runs).await;
        StatusCode::CREATED
    };
    let shop = Shop::open(Policy::default(), handler).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    let unanswered = "UPDATE onlyonce.transactional
                         SET status = NULL, headers = NULL, body = NULL, expires_at = NULL";
    shop.lab.sql(unanswered);
    let answer = shop.post("k", BODY).await;
    let told = (answer.status.as_u16(), answer.code());
    assert_eq!(told, (409, "idempotency_outcome_unknown".to_owned()), "{answer:?}");
    let retry: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(retry["retry"], "same-key", "an operator may give it an answer");
    assert_eq!((shop.runs(), shop.lab.charges()), (1, "1".to_owned()));
}

/// The column has the operation, so it was done, also if the database does not tell its answer any more.
// threat K18
#[tokio::test]
async fn an_operation_in_the_operations_column_was_done_whatever_fails_after_it() {
    let lab = Lab::start().await;
    lab.sql("ALTER TABLE charge ADD UNIQUE (operation)");
    let spoil: PgPool = lab.pool(1).await;
    let handler = async move |mut tx: Tx, State(runs): Runs| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        let operation = tx.operation_id().to_owned();
        let charge = sqlx::query("INSERT INTO charge VALUES ($1::uuid, 7998)").bind(operation);
        let charged = charge.execute(&mut *tx).await;
        if run == 1 {
            sqlx::query("ALTER SCHEMA onlyonce RENAME TO gone").execute(&spoil).await.unwrap();
        }
        match charged {
            Ok(_) => StatusCode::CREATED,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    };
    let column = |layer: onlyonce::transaction::TransactionLayer| {
        layer.with_operation_column("charge", "operation")
    };
    let shop = Shop::open_in(lab, Policy::default(), handler, column).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    shop.lab.sql("DELETE FROM onlyonce.transactional");
    let answer = shop.post("k", BODY).await;
    let told = (answer.status.as_u16(), answer.code());
    assert_eq!(told, (409, "idempotency_response_unavailable".to_owned()), "{answer:?}");
}
