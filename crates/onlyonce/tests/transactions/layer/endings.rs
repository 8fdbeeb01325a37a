//! Which answers commit, which are declined, and which roll back.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use onlyonce::Policy;
use onlyonce::transaction::{Ending, Tx};

use super::{BODY, Shop, insert};

type Runs = State<Arc<AtomicUsize>>;

/// Charges, sends a message, and answers with the status that the request asks for.
async fn answer_as_told(mut tx: Tx, State(runs): Runs, body: String) -> Response {
    let run = insert(&mut tx, &runs).await;
    tx.outbox("charges", None, b"charged").await.unwrap();
    let told: serde_json::Value = serde_json::from_str(&body).unwrap();
    let status = StatusCode::from_u16(told["status"].as_u64().unwrap() as u16).unwrap();
    let mut response = (status, format!("run {run}")).into_response();
    if told["retry_after"] == true {
        response.headers_mut().insert(header::RETRY_AFTER, 1.into());
    }
    if told["store"] == true {
        response.headers_mut().insert("idempotency-store", HeaderValue::from_static("store"));
    }
    match told["ending"].as_str() {
        Some("complete") => (Ending::Complete, response).into_response(),
        Some("decline") => (Ending::Decline, response).into_response(),
        Some("roll back") => (Ending::RollBack, response).into_response(),
        _ => response,
    }
}

/// The answer, whether the writes stay, and whether the answer stays.
const TABLE: [(&str, bool, bool); 24] = [
    (r#"{"status":200}"#, true, true),
    (r#"{"status":201}"#, true, true),
    (r#"{"status":303}"#, true, true),
    (r#"{"status":400}"#, false, true),
    (r#"{"status":402}"#, false, true),
    (r#"{"status":404}"#, false, true),
    (r#"{"status":409}"#, false, true),
    (r#"{"status":422}"#, false, true),
    (r#"{"status":401}"#, false, false),
    (r#"{"status":403}"#, false, false),
    (r#"{"status":408}"#, false, false),
    (r#"{"status":429}"#, false, false),
    (r#"{"status":409,"retry_after":true}"#, false, false),
    (r#"{"status":500}"#, false, false),
    (r#"{"status":502}"#, false, false),
    (r#"{"status":503}"#, false, false),
    (r#"{"status":503,"retry_after":true}"#, false, false),
    (r#"{"status":504}"#, false, false),
    (r#"{"status":401,"store":true}"#, false, true),
    (r#"{"status":500,"store":true}"#, false, false),
    (r#"{"status":402,"ending":"complete"}"#, true, true),
    (r#"{"status":500,"ending":"complete"}"#, true, true),
    (r#"{"status":500,"ending":"decline"}"#, false, true),
    (r#"{"status":200,"ending":"roll back"}"#, false, false),
];

// R125, R126
#[tokio::test]
async fn the_answer_decides_what_stays_of_the_writes_and_of_itself() {
    let shop = Shop::open(Policy::default(), answer_as_told).await;
    for (number, (body, stay, is_kept)) in TABLE.into_iter().enumerate() {
        let key = format!("k{number}");
        let (charges, runs) = (shop.lab.charges(), shop.runs());
        let first = shop.post(&key, body).await;
        assert_eq!(
            first.body,
            format!("run {}", runs + 1),
            "{body}: passed as the handler made it"
        );
        assert!(!first.is_replay(), "{body}");
        let charged = charges.parse::<usize>().unwrap() + usize::from(stay);
        assert_eq!(shop.lab.charges(), charged.to_string(), "{body}");
        let messages = shop.lab.sql("SELECT count(*) FROM onlyonce.outbox");
        assert_eq!(messages, charged.to_string(), "{body}: messages go with the writes");
        let again = shop.post(&key, body).await;
        assert_eq!(again.status, first.status, "{body}");
        assert_eq!(again.is_replay(), is_kept, "{body}");
        assert_eq!(shop.runs(), runs + if is_kept { 1 } else { 2 }, "{body}");
        if is_kept {
            assert_eq!(again.body, first.body, "{body}");
        }
        assert_eq!(shop.lab.charges(), charged.to_string(), "{body}: after a retry");
    }
    assert!(shop.is_quiet());
}

// R125
#[tokio::test]
async fn a_handler_that_takes_no_transaction_is_completed_all_the_same() {
    let handler = async |State(runs): Runs| {
        let run = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        (StatusCode::CREATED, format!("run {run}"))
    };
    let shop = Shop::open(Policy::default(), handler).await;
    let (first, again) = (shop.post("k", BODY).await, shop.post("k", BODY).await);
    assert_eq!((first.status, first.body), (again.status, again.body.clone()));
    assert_eq!((&again.body[..], again.is_replay()), (&b"run 1"[..], true));
}
