//! A server that is not ours, written to Stripe's documented behaviour.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use onlyonce::client::{Client, Retries, SendOutcome};
use onlyonce::key::Key;
use tokio::sync::Notify;

/// What it keeps of a key: the parameters it was first used with, and the answer once there is one.
#[derive(Clone)]
struct Kept {
    parameters: String,
    answer: Option<(StatusCode, String)>,
}

#[derive(Default)]
struct Api {
    keys: Mutex<HashMap<String, Kept>>,
    charges: Mutex<usize>,
    /// How often a key was in use.
    refusals: AtomicUsize,
    /// Charges whose parameters say `slow` wait for this.
    gate: Notify,
}

async fn start() -> (String, Arc<Api>) {
    let api = Arc::<Api>::default();
    let app = Router::new().route("/v1/charges", post(charge)).with_state(api.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/charges", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, api)
}

async fn charge(State(api): State<Arc<Api>>, headers: HeaderMap, parameters: String) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let kept = api.keys.lock().unwrap().get(&key).cloned();
    match kept {
        Some(kept) if kept.parameters != parameters => return mismatch(),
        Some(Kept { answer: Some(answer), .. }) => {
            return (answer.0, [("idempotent-replayed", "true")], answer.1).into_response();
        }
        Some(_) => {
            api.refusals.fetch_add(1, Ordering::SeqCst);
            return in_use();
        }
        None => {}
    }
    let begun = Kept { parameters: parameters.clone(), answer: None };
    api.keys.lock().unwrap().insert(key.clone(), begun);
    if parameters.contains("slow") {
        api.gate.notified().await;
    }
    *api.charges.lock().unwrap() += 1;
    let status = if parameters.contains("fail") { 500 } else { 200 };
    let answer = (StatusCode::from_u16(status).unwrap(), "{\"id\":\"ch_1\"}".to_owned());
    let done = Kept { parameters, answer: Some(answer.clone()) };
    api.keys.lock().unwrap().insert(key, done);
    answer.into_response()
}

fn error(status: StatusCode, body: &'static str) -> Response {
    (status, [("content-type", "application/json")], body).into_response()
}

fn mismatch() -> Response {
    error(StatusCode::BAD_REQUEST, "{\"error\":{\"type\":\"idempotency_error\"}}")
}

fn in_use() -> Response {
    let body =
        "{\"error\":{\"type\":\"invalid_request_error\",\"code\":\"idempotency_key_in_use\"}}";
    error(StatusCode::CONFLICT, body)
}

fn client() -> Client {
    let backoff = Duration::from_millis(5);
    Client::new().with_retries(Retries::new().with_backoff(backoff, backoff))
}

// R153, R154, R161
#[tokio::test]
async fn stripes_answers_are_understood_without_being_told_that_it_is_stripe() {
    let (url, api) = start().await;
    let key = Key::derive(["order", "1"]);
    let charge = client().post(&url).with_key(key.clone()).body("amount=1");
    assert!(matches!(charge.clone().send().await.unwrap(), SendOutcome::Fresh(_)));
    assert!(matches!(charge.clone().send().await.unwrap(), SendOutcome::Replayed(_)));
    let other = charge.body("amount=2").send().await.unwrap();
    let SendOutcome::Rejected { answer, .. } = other else { panic!("{other:?}") };
    assert_eq!(answer.status, 400);
    assert_eq!(*api.charges.lock().unwrap(), 1);
}

// R153
#[tokio::test]
async fn a_key_in_use_is_asked_again_until_its_answer_is_there() {
    let (url, api) = start().await;
    let charge = client().post(&url).body("amount=1&slow");
    let first = tokio::spawn(charge.clone().send());
    let opened = async {
        while api.keys.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let second = tokio::spawn(charge.send());
        // The second asks at least once while the first is at work, then the gate opens.
        while api.refusals.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        api.gate.notify_one();
        second.await.unwrap().unwrap()
    };
    assert!(matches!(opened.await, SendOutcome::Replayed(_)));
    assert!(matches!(first.await.unwrap().unwrap(), SendOutcome::Fresh(_)));
    assert_eq!(*api.charges.lock().unwrap(), 1);
}

// R154
#[tokio::test]
async fn a_500_is_asked_again_once_and_its_replay_is_the_end() {
    let (url, api) = start().await;
    let end = client().post(&url).body("amount=1&fail").send().await.unwrap();
    let SendOutcome::Unknown { last: Some(last), .. } = end else { panic!("{end:?}") };
    assert!(last.is_replay() && last.status == 500);
    assert_eq!(*api.charges.lock().unwrap(), 1);
}
