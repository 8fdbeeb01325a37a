//! Handlers that never take their transaction: what they do is not part of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use http::{HeaderValue, StatusCode};
use onlyonce::Policy;

use super::{BODY, Shop, charge, send};
use crate::lab::Lab;

type Runs = State<Arc<AtomicUsize>>;

/// Nothing of it was undone, so nobody is told so, and no retry runs it again.
// R125
#[tokio::test]
async fn an_outcome_that_nobody_knows_is_told_and_kept() {
    let handler = async |State(runs): Runs, body: String| -> Result<StatusCode, String> {
        runs.fetch_add(1, Ordering::SeqCst);
        match body.as_str() {
            "panic" => panic!("after its effect"),
            "large" => Err("7".repeat(1_001)),
            _ => std::future::pending().await,
        }
    };
    let policy = Policy::default()
        .with_upstream_timeout(Duration::from_millis(200))
        .with_response_bytes_max(1_000);
    let shop = Shop::open(policy, handler).await;
    for (body, status) in [("panic", 502), ("large", 502), ("pending", 504)] {
        let before = shop.runs();
        let first = shop.post(body, body).await;
        let told = (first.status.as_u16(), first.code());
        assert_eq!(told, (status, "idempotency_outcome_unknown".to_owned()), "{body}");
        let again = shop.post(body, body).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{body}");
        assert_eq!((again.is_replay(), shop.runs() - before), (true, 1), "{body}");
    }
}

/// COMMIT fails once with a serialization failure: the answer is kept by another transaction, not by another run.
// R128
#[tokio::test]
async fn a_conflict_of_its_answer_does_not_run_the_handler_again() {
    let lab = Lab::start().await;
    lab.sql(
        "CREATE SEQUENCE commits;
         CREATE FUNCTION conflict_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('commits') = 1 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;
           RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON onlyonce.transactional
           DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION conflict_once()",
    );
    let handler = async |State(runs): Runs| {
        runs.fetch_add(1, Ordering::SeqCst);
        (StatusCode::CREATED, "done")
    };
    let shop = Shop::open_in(lab, Policy::default(), handler, |layer| layer).await;
    let first = shop.post("k", BODY).await;
    assert_eq!((first.status, &first.body[..]), (StatusCode::CREATED, &b"done"[..]));
    assert!(shop.post("k", BODY).await.is_replay());
    assert_eq!((shop.runs(), shop.lab.sql("SELECT last_value FROM commits")), (1, "2".to_owned()));
}

/// COMMIT never succeeds: the effect may be there, and the client is told so.
#[tokio::test]
async fn an_answer_that_cannot_be_kept_is_an_unknown_outcome() {
    let lab = Lab::start().await;
    lab.sql(
        "CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           RAISE EXCEPTION 'conflict' USING ERRCODE = '40001';
         END $$;
         CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON onlyonce.transactional
           DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION conflict()",
    );
    let handler = async |State(runs): Runs| {
        runs.fetch_add(1, Ordering::SeqCst);
        StatusCode::CREATED
    };
    let shop = Shop::open_in(lab, Policy::default(), handler, |layer| layer).await;
    let answer = shop.post("k", BODY).await;
    let told = (answer.status.as_u16(), answer.code());
    assert_eq!(told, (502, "idempotency_outcome_unknown".to_owned()));
    assert_eq!(shop.runs(), 1);
}

// R188
#[tokio::test]
async fn a_request_without_a_key_in_early_data_is_too_early() {
    let handler = async |State(runs): Runs| {
        runs.fetch_add(1, Ordering::SeqCst);
        StatusCode::CREATED
    };
    let shop = Shop::open(Policy::default(), handler).await;
    let early = |key: Option<&str>| {
        let mut request = charge(key.unwrap_or_default(), BODY);
        request.headers_mut().insert("early-data", HeaderValue::from_static("1"));
        if key.is_none() {
            request.headers_mut().remove("idempotency-key");
        }
        request
    };
    let refused = send(shop.app.clone(), early(None)).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::TOO_EARLY, "too_early"));
    assert_eq!(shop.runs(), 0);
    let first = send(shop.app.clone(), early(Some("k-1"))).await;
    let copy = send(shop.app.clone(), early(Some("k-1"))).await;
    assert_eq!((first.status, copy.is_replay(), shop.runs()), (StatusCode::CREATED, true, 1));
}
