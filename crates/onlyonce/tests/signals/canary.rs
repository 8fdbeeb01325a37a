//! No key, credential or body is ever in what the library tells.

use http_body_util::Full;
use onlyonce::Policy;

use crate::faults::app::{Handler, charge_with, created, send};
use crate::faults::lab::Lab;
use crate::faults::scripted::{Act, Call};
use crate::log::Log;

// threat H5
#[tokio::test]
async fn keys_credentials_and_bodies_are_in_no_event_and_no_span() {
    let log = Log::open();
    let handler = Handler::new(|request| async move {
        match request.headers().get("x-do").map(|value| value.as_bytes()) {
            Some(b"panic") => panic!("the handler has a bug"),
            Some(b"fail") => Err("no answer".into()),
            _ => Ok(created(format!("{CANARY} in the answer"))),
        }
    });
    let lab = Lab::with(handler, Policy::default());
    for (key, act, body) in [
        ("fresh", "", "1"),
        ("fresh", "", "1"),
        ("fresh", "", "2"),
        ("failing", "fail", "1"),
        ("failing", "", "1"),
        ("panicking", "panic", "1"),
    ] {
        ask(&lab, key, act, body).await;
    }
    for call in [Call::Claim, Call::Settle, Call::MarkUnknown] {
        lab.store.next(call, 2, Act::LoseCall);
        ask(&lab, &format!("{call:?}"), "", "1").await;
    }
    for (act, status) in [(Act::NotDone, 503), (Act::Unreadable, 409), (Act::Busy, 503)] {
        lab.store.next(Call::Claim, 1, act);
        assert_eq!(ask(&lab, "down", "", "1").await, status);
    }
    let text = log.text();
    assert!(text.contains("outcome unknown") && text.contains("the store does not answer"));
    assert_eq!(found(&text), None);
    // The search finds what it looks for.
    tracing::info!("{CANARY}");
    assert!(found(&log.text()).is_some());
}

async fn ask(lab: &Lab, key: &str, act: &str, body: &str) -> u16 {
    let body = Full::from(format!("{{\"card\":\"{CANARY}-body-{body}\"}}"));
    let mut request = charge_with(&format!("{CANARY}-key-{key}"), body);
    let headers = request.headers_mut();
    headers.insert("x-who", value(&format!("{CANARY}-who")));
    headers.insert("authorization", value(&format!("Bearer {CANARY}-token")));
    headers.insert("x-do", value(act));
    send(&lab.app, request).await.status
}

fn value(text: &str) -> http::HeaderValue {
    text.parse().expect("a header value")
}

fn found(text: &str) -> Option<&str> {
    text.lines().find(|line| line.to_lowercase().contains(&CANARY.to_lowercase()))
}

const CANARY: &str = "CANARY4f1c";
