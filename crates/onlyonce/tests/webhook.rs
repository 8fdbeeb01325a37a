//! Webhooks in, through the layer of the library.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use onlyonce::clock::Clock;
use onlyonce::http::OnceLayer;
use onlyonce::policy::{KeyNeed, Mode};
use onlyonce::scope::Principal;
use onlyonce::store::conformance::ManualClock;
use onlyonce::store::memory::MemoryStore;
use onlyonce::webhook::{Provider, Verifier};
use onlyonce::{Once, Policy};
use sha2::Sha256;
use tower::ServiceExt;

/// A receiver of Standard Webhooks, and how often its handler ran.
struct Receiver {
    app: Router,
    layer: OnceLayer,
    runs: Arc<AtomicUsize>,
    clock: ManualClock,
}

impl Receiver {
    fn new(policy: Policy) -> Self {
        let (runs, clock) = (Arc::new(AtomicUsize::new(0)), ManualClock::new());
        let store = MemoryStore::with_clock(clock.clone());
        let once = Once::builder(store).with_clock(clock.clone()).build();
        let verifier = Verifier::new(Provider::Standard, [SECRET]).unwrap();
        let layer = once.layer(|_: &Parts| Principal::anonymous(), policy);
        let layer = layer.with_verifier(move |head, body, now| verifier.verify(head, body, now));
        let handler = {
            let runs = runs.clone();
            move || async move { format!("taken {}", runs.fetch_add(1, Ordering::SeqCst) + 1) }
        };
        let app = Router::new().route("/hooks", post(handler)).layer(layer.clone());
        Self { app, layer, runs, clock }
    }

    fn standard() -> Self {
        Self::new(Policy::webhook().for_provider(Provider::Standard))
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.app.clone().oneshot(request).await.unwrap()
    }

    /// A delivery that is signed now.
    fn delivery(&self, id: &str, secret: &str) -> Request<Body> {
        let at = self.clock.wall().as_ms() / 1_000;
        let key = BASE64.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
        mac.update(format!("{id}.{at}.{BODY}").as_bytes());
        let signature = BASE64.encode(mac.finalize().into_bytes());
        let request = Request::post("/hooks").header("webhook-id", id);
        let request = request.header("webhook-timestamp", at);
        let request = request.header("webhook-signature", format!("v1,{signature}"));
        request.body(Body::from(BODY)).unwrap()
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

const BODY: &str = r#"{"type":"invoice.paid"}"#;
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const FORGED: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

// R142; WHK-06
#[tokio::test]
async fn a_duplicate_six_days_later_has_no_effect() {
    let receiver = Receiver::standard();
    let first = receiver.send(receiver.delivery("msg_1", SECRET)).await;
    assert_eq!(first.status(), StatusCode::OK);
    receiver.clock.advance(Duration::from_secs(6 * 24 * 60 * 60));
    let late = receiver.send(receiver.delivery("msg_1", SECRET)).await;
    assert_eq!(late.status(), StatusCode::OK);
    assert_eq!(late.headers()["idempotent-replayed"], "true");
    assert_eq!(receiver.runs(), 1);
}

// WHK-02, WHK-03
// threat J8
#[tokio::test]
async fn what_is_not_genuine_claims_nothing() {
    let receiver = Receiver::standard();
    let forged = receiver.send(receiver.delivery("msg_1", FORGED)).await;
    assert_eq!(forged.status(), StatusCode::UNAUTHORIZED);
    let recorded = receiver.delivery("msg_1", SECRET);
    receiver.clock.advance(Duration::from_secs(301));
    assert_eq!(receiver.send(recorded).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(receiver.runs(), 0);
    let genuine = receiver.send(receiver.delivery("msg_1", SECRET)).await;
    assert_eq!(genuine.status(), StatusCode::OK);
    assert!(!genuine.headers().contains_key("idempotent-replayed"));
    assert_eq!(receiver.runs(), 1);
}

// Even where the policy lets requests without a key pass, none of them passes unverified.
#[tokio::test]
async fn a_delivery_without_a_key_does_not_pass_unverified() {
    let policy = Policy::webhook().for_provider(Provider::Standard);
    let receiver = Receiver::new(policy.with_key(KeyNeed::Optional));
    let bare = Request::post("/hooks").body(Body::from(BODY)).unwrap();
    assert_eq!(receiver.send(bare).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(receiver.runs(), 0);
}

// An observed route changes nothing for genuine deliveries, and is no door for forged ones.
#[tokio::test]
async fn what_is_not_genuine_is_refused_while_observing_too() {
    let policy = Policy::webhook().for_provider(Provider::Standard).with_mode(Mode::Observe);
    let receiver = Receiver::new(policy);
    let sized = |mut request: Request<Body>| {
        request.headers_mut().insert("content-length", BODY.len().into());
        request
    };
    // With its length told or without, with a key or without: whether it can be observed or not.
    let forged = || receiver.delivery("msg_1", FORGED);
    let bare = Request::post("/hooks").body(Body::from(BODY)).unwrap();
    for forged in [forged(), sized(forged()), bare] {
        assert_eq!(receiver.send(forged).await.status(), StatusCode::UNAUTHORIZED);
    }
    assert_eq!(receiver.runs(), 0);
    for genuine in [receiver.delivery("msg_1", SECRET), sized(receiver.delivery("msg_1", SECRET))] {
        assert_eq!(receiver.send(genuine).await.status(), StatusCode::OK);
    }
    assert_eq!(receiver.runs(), 2, "nothing is guarded");
}

// Whoever asks has no signature, and the ids of events are no secret.
#[tokio::test]
async fn nobody_is_told_the_state_of_a_delivery() {
    let receiver = Receiver::standard();
    receiver.send(receiver.delivery("msg_1", SECRET)).await;
    let (head, _) = receiver.delivery("msg_1", SECRET).into_parts();
    let told = receiver.layer.look_up(&head).await;
    assert_eq!(told.status(), StatusCode::NOT_FOUND);
}
