//! What a client sees: the same as with the ordinary layer.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::post;
use http::{Request, StatusCode};
use onlyonce::Policy;
use onlyonce::fingerprint::{FingerprintMode, FingerprintRules};
use onlyonce::policy::{KeyNeed, Mode};
use onlyonce::transaction::{Transactions, Tx};

use super::{Answer, BODY, Shop, caller, charge, insert, send};
use crate::lab::Lab;

type Runs = State<Arc<AtomicUsize>>;

async fn create(mut tx: Tx, State(runs): Runs) -> impl IntoResponse {
    let run = insert(&mut tx, &runs).await;
    let headers = [("location", "/charges/1"), ("set-cookie", "a=b"), ("x-request-id", "7")];
    (StatusCode::CREATED, headers, format!("charge {run}"))
}

// R125, R126, R66
#[tokio::test]
async fn a_retry_gets_the_first_answer_with_the_headers_that_are_kept() {
    let shop = Shop::open(Policy::default(), create).await;
    let first = shop.post("k", BODY).await;
    assert_eq!((first.status, &first.body[..]), (StatusCode::CREATED, &b"charge 1"[..]));
    assert_eq!(first.headers["set-cookie"], "a=b", "the first caller gets everything");
    // Another spelling of the same JSON is the same request.
    let again = shop.post("k", r#"{ "amount" : 7998.0 }"#).await;
    assert_eq!((again.status, &again.body), (StatusCode::CREATED, &first.body));
    assert!(again.is_replay() && !first.is_replay());
    assert_eq!(again.headers["location"], "/charges/1");
    assert!(
        !again.headers.contains_key("set-cookie") && !again.headers.contains_key("x-request-id")
    );
    assert_eq!((shop.lab.charges(), shop.runs()), ("1".to_owned(), 1));
}

#[tokio::test]
async fn keys_and_callers_are_refused_as_by_the_ordinary_layer() {
    let policy = Policy::default().with_key(KeyNeed::Required).with_request_bytes_max(64);
    let shop = Shop::open(policy, create).await;
    let changed = |change: &dyn Fn(&mut Request<Body>)| {
        let mut request = charge("k", BODY);
        change(&mut request);
        send(shop.app.clone(), request)
    };
    let no_key = changed(&|request| drop(request.headers_mut().remove("idempotency-key"))).await;
    refused(&no_key, 400, "idempotency_key_missing");
    refused(&shop.post("", BODY).await, 400, "idempotency_key_invalid");
    let nobody = changed(&|request| drop(request.headers_mut().remove("x-api-key"))).await;
    refused(&nobody, 401, "principal_missing");
    let unclear = changed(&|request| {
        request.headers_mut().insert("x-api-key", "unclear".parse().unwrap());
    });
    refused(&unclear.await, 400, "principal_unclear");
    refused(&shop.post("k", &"7".repeat(65)).await, 413, "request_too_large");
    assert_eq!((shop.runs(), shop.operations()), (0, "0".to_owned()));
}

#[tokio::test]
async fn one_key_with_another_request_is_refused_unless_requests_are_not_compared() {
    let shop = Shop::open(Policy::default(), create).await;
    shop.post("k", BODY).await;
    refused(&shop.post("k", r#"{"amount":1}"#).await, 422, "idempotency_key_reused");
    let rules = FingerprintRules { mode: FingerprintMode::None, ..FingerprintRules::default() };
    let shop = Shop::open(Policy::default().with_fingerprint(rules), create).await;
    shop.post("k", BODY).await;
    assert!(shop.post("k", r#"{"amount":1}"#).await.is_replay());
    assert_eq!(shop.lab.charges(), "1");
}

#[tokio::test]
async fn callers_and_the_paths_below_a_nested_router_are_separate() {
    let lab = Lab::start().await;
    let layer = Transactions::new().layer(lab.pool(2).await, caller, Policy::default());
    let handler = async |mut tx: Tx, Path(account): Path<String>| {
        sqlx::query(crate::lab::CHARGE).execute(&mut *tx).await.unwrap();
        account
    };
    let accounts = Router::new().route("/charges", post(handler)).layer(layer);
    let app = Router::new().nest("/accounts/{account}", accounts);
    for (path, key) in [
        ("/accounts/1/charges", "ann"),
        ("/accounts/2/charges", "ann"),
        ("/accounts/1/charges", "bob"),
    ] {
        for is_replay in [false, true] {
            let mut request = charge("k", BODY);
            *request.uri_mut() = path.parse().unwrap();
            request.headers_mut().insert("x-api-key", key.parse().unwrap());
            let answer = send(app.clone(), request).await;
            assert_eq!(answer.is_replay(), is_replay, "{path} {key}");
            assert!(path.contains(&format!("/{}/", String::from_utf8_lossy(&answer.body))));
        }
    }
    assert_eq!(lab.charges(), "3");
}

#[tokio::test]
async fn an_answer_that_cannot_be_kept_is_rolled_back_and_names_the_limit() {
    let large = async |mut tx: Tx, State(runs): Runs| {
        insert(&mut tx, &runs).await;
        "7".repeat(101)
    };
    let shop = Shop::open(Policy::default().with_response_bytes_max(100), large).await;
    let answer = shop.post("k", BODY).await;
    refused(&answer, 500, "idempotency_rolled_back");
    assert!(String::from_utf8_lossy(&answer.body).contains("100 bytes"));
    let events = async |mut tx: Tx, State(runs): Runs| {
        insert(&mut tx, &runs).await;
        ([("content-type", "text/event-stream")], "data: 1\n\n")
    };
    let streaming = Shop::open(Policy::default(), events).await;
    refused(&streaming.post("k", BODY).await, 500, "idempotency_rolled_back");
    assert_eq!((shop.lab.charges(), streaming.lab.charges()), ("0".to_owned(), "0".to_owned()));
}

#[tokio::test]
async fn a_database_that_does_not_answer_is_told_and_nothing_runs() {
    let shop = Shop::open(Policy::default(), create).await;
    shop.pool.close().await;
    refused(&shop.post("k", BODY).await, 503, "idempotency_store_unavailable");
    assert_eq!(shop.runs(), 0);
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_rolled_back() {
    let slow = async |mut tx: Tx, State(runs): Runs| {
        if insert(&mut tx, &runs).await == 1 {
            std::future::pending::<()>().await;
        }
        StatusCode::CREATED
    };
    let policy = Policy::default().with_upstream_timeout(Duration::from_millis(500));
    let shop = Shop::open(policy, slow).await;
    refused(&shop.post("k", BODY).await, 504, "idempotency_rolled_back");
    assert_eq!(shop.lab.charges(), "0");
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    assert_eq!(shop.lab.charges(), "1");
}

/// The server ends a statement that nobody waits for any more, so that the key is free again.
#[tokio::test]
async fn a_statement_that_outlives_its_request_does_not_keep_the_key() {
    let stuck = async |mut tx: Tx, State(runs): Runs| {
        if insert(&mut tx, &runs).await == 1 {
            sqlx::query("SELECT pg_sleep(3600)").execute(&mut *tx).await.unwrap();
        }
        StatusCode::CREATED
    };
    let policy = Policy::default().with_upstream_timeout(Duration::from_millis(200));
    let shop = Shop::open(policy, stuck).await;
    refused(&shop.post("k", BODY).await, 504, "idempotency_rolled_back");
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    assert_eq!(shop.lab.charges(), "1");
}

#[tokio::test]
async fn statements_end_with_their_request_or_by_a_shorter_limit_of_the_role() {
    let limit = async |mut tx: Tx| {
        sqlx::query_scalar::<_, String>("SHOW statement_timeout").fetch_one(&mut *tx).await.unwrap()
    };
    for (set, expected) in [("0", "31s"), ("2min", "31s"), ("7s", "7s")] {
        let lab = Lab::start().await;
        lab.sql(&format!("ALTER ROLE ALL SET statement_timeout = '{set}'"));
        let shop = Shop::open_in(lab, Policy::default(), limit, |layer| layer).await;
        assert_eq!(shop.post("k", BODY).await.body, expected, "{set}");
        let pooled: String =
            sqlx::query_scalar("SHOW statement_timeout").fetch_one(&shop.pool).await.unwrap();
        assert_eq!(pooled, set, "for the transaction alone");
    }
}

/// Whoever wrote it: the operation was done, and nobody may say that it was not.
#[tokio::test]
async fn a_kept_answer_that_cannot_be_read_is_never_told_as_not_executed() {
    let shop = Shop::open(Policy::default(), create).await;
    shop.post("k", BODY).await;
    shop.lab.sql(r#"UPDATE onlyonce.transactional SET headers = '{"a b": "c"}'"#);
    refused(&shop.post("k", BODY).await, 409, "idempotency_response_unavailable");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn the_layer_enforces_even_if_the_policy_says_to_observe() {
    let shop = Shop::open(Policy::default().with_mode(Mode::Observe), create).await;
    assert_eq!(shop.post("k", BODY).await.status, StatusCode::CREATED);
    assert!(shop.post("k", BODY).await.is_replay());
    let mut request = charge("k", BODY);
    *request.method_mut() = "post".parse().unwrap();
    refused(&send(shop.app.clone(), request).await, 400, "request_ambiguous");
}

fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (status, code), "{answer:?}");
    assert_eq!(answer.headers["content-type"], "application/problem+json");
}
