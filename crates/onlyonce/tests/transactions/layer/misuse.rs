//! Handlers that do with their transaction what they should not.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use onlyonce::Policy;
use onlyonce::transaction::Tx;

use super::{BODY, Shop, charge, insert, send};

type Runs = State<Arc<AtomicUsize>>;

// R125, threats C9, C10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_outlives_the_answer_is_not_committed() {
    let kept: Arc<Mutex<Vec<Tx>>> = Arc::default();
    let keep = kept.clone();
    let handler = async move |mut tx: Tx, State(runs): Runs| {
        if insert(&mut tx, &runs).await == 1 {
            keep.lock().unwrap().push(tx);
        }
        StatusCode::CREATED
    };
    let shop = Shop::open(Policy::default(), handler).await;
    let answer = shop.post("k", BODY).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "idempotency_rolled_back"));
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CONFLICT, "it still has the key");
    kept.lock().unwrap().clear();
    assert!(shop.is_quiet(), "what comes back late is rolled back");
    assert_eq!(shop.lab.charges(), "0");
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    assert_eq!(shop.lab.charges(), "1");
}

// R125, threats C9, C10
#[tokio::test]
async fn a_handler_that_ends_its_transaction_by_itself_is_never_a_success() {
    for (sql, status) in [
        ("COMMIT", StatusCode::CREATED),
        ("ROLLBACK", StatusCode::CREATED),
        ("ROLLBACK; BEGIN", StatusCode::CREATED),
        ("COMMIT", StatusCode::NOT_FOUND),
        ("ROLLBACK", StatusCode::UNAUTHORIZED),
    ] {
        let handler = async move |mut tx: Tx, State(runs): Runs| {
            insert(&mut tx, &runs).await;
            let _ = sqlx::raw_sql(sql).execute(&mut *tx).await;
            status
        };
        let shop = Shop::open(Policy::default(), handler).await;
        let answer = shop.post("k", BODY).await;
        let told = (answer.status.as_u16(), answer.code());
        assert_eq!(told, (500, "idempotency_outcome_unknown".to_owned()), "{sql} {status}");
        assert_eq!((shop.lab.charges(), shop.operations()), ("0".to_owned(), "0".to_owned()));
    }
}

/// The one thing that the layer cannot undo, so that the documentation warns of it.
#[tokio::test]
async fn what_a_handler_writes_after_the_end_of_its_transaction_stays() {
    for sql in ["COMMIT", "ROLLBACK"] {
        let handler = async move |mut tx: Tx, State(runs): Runs| {
            insert(&mut tx, &runs).await;
            let _ = sqlx::raw_sql(sql).execute(&mut *tx).await;
            insert(&mut tx, &runs).await;
            StatusCode::CREATED
        };
        let shop = Shop::open(Policy::default(), handler).await;
        assert_eq!(shop.post("k", BODY).await.code(), "idempotency_outcome_unknown", "{sql}");
        assert_eq!((shop.lab.charges(), shop.runs()), ("1".to_owned(), 2), "{sql}");
    }
}

// R126
#[tokio::test]
async fn a_panic_rolls_back_and_frees_the_key() {
    let handler = async |mut tx: Tx, State(runs): Runs| {
        assert_ne!(insert(&mut tx, &runs).await, 1, "the first run panics");
        StatusCode::CREATED
    };
    let shop = Shop::open(Policy::default(), handler).await;
    let answer = shop.post("k", BODY).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "idempotency_rolled_back"));
    assert_eq!(shop.lab.charges(), "0");
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    assert_eq!(shop.lab.charges(), "1");
}

#[tokio::test]
async fn an_error_of_the_database_that_the_handler_ignores_is_no_success() {
    let handler = async |mut tx: Tx, State(runs): Runs| {
        insert(&mut tx, &runs).await;
        let _ = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
        StatusCode::CREATED
    };
    let shop = Shop::open(Policy::default(), handler).await;
    let answer = shop.post("k", BODY).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (500, "idempotency_rolled_back"));
    assert_eq!((shop.runs(), shop.lab.charges()), (1, "0".to_owned()));
}

#[tokio::test]
async fn a_handler_takes_one_transaction_and_only_on_a_guarded_request() {
    let shop = Shop::open(Policy::default(), async |_: Tx, _: Tx| StatusCode::CREATED).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::INTERNAL_SERVER_ERROR);
    let mut request = charge("k", BODY);
    request.headers_mut().remove("idempotency-key");
    let answer = send(shop.app.clone(), request).await;
    let told = (answer.status.as_u16(), answer.code());
    assert_eq!(told, (400, "idempotency_key_missing".to_owned()));
    let unguarded = axum::Router::new()
        .route("/charges", axum::routing::post(async |_: Tx| StatusCode::CREATED.into_response()));
    let answer = send(unguarded, charge("k", BODY)).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
}
