//! `testing::twice` on services that are right, and on services that are wrong in ways that are often seen.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use onlyonce::scope::Principal;
use onlyonce::store::memory::MemoryStore;
use onlyonce::testing::{Report, Trial, What, twice, twice_with_failure};
use onlyonce::{Once, Policy};
use tokio::task::yield_now;

/// A shop whose charges are counted, and the answers that it remembers.
#[derive(Clone, Default)]
struct Shop {
    charges: Arc<AtomicU64>,
    answers: Arc<Mutex<HashMap<String, String>>>,
    fails: Arc<AtomicBool>,
}

impl Shop {
    /// Work that takes a while, with the effect in its middle.
    async fn charge(&self) -> String {
        yield_now().await;
        let number = self.charges.fetch_add(1, Ordering::SeqCst);
        yield_now().await;
        format!("charge {number}")
    }

    fn answer(&self, key: &str) -> Option<String> {
        self.answers.lock().unwrap().get(key).cloned()
    }

    fn keep(&self, key: &str, answer: &str) {
        self.answers.lock().unwrap().insert(key.to_owned(), answer.to_owned());
    }

    async fn try_out(&self, app: Router) -> Report {
        let report = twice(app, request, async || self.charges.load(Ordering::SeqCst)).await;
        println!("{report}\n");
        report
    }
}

fn request(key: &str) -> Request<&'static str> {
    let request = Request::post("/charges").header("content-type", "application/json");
    request.header("idempotency-key", key).body(r#"{"amount":7998}"#).unwrap()
}

fn key(headers: &HeaderMap) -> String {
    headers["idempotency-key"].to_str().unwrap().to_owned()
}

fn guarded(router: Router) -> Router {
    let once = Once::new(MemoryStore::new());
    let layer = once.layer(|_: &Parts| Principal::anonymous(), Policy::default());
    router.layer(layer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_right_has_a_clean_report() {
    let shop = Shop::default();
    let of_handler = shop.clone();
    let handler = async move || (StatusCode::CREATED, of_handler.charge().await);
    let report = shop.try_out(guarded(Router::new().route("/charges", post(handler)))).await;
    report.assert_once();
    assert!(report.operations >= 8 && report.requests > 3 * report.operations, "{report:?}");
    assert!(report.to_string().starts_with("once: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_a_key_is_found_in_sequence() {
    let shop = Shop::default();
    let of_handler = shop.clone();
    let handler = async move || of_handler.charge().await;
    let report = shop.try_out(Router::new().route("/charges", post(handler))).await;
    assert!(report.has(Trial::InSequence) && !report.is_once());
    let in_sequence = report.findings.iter().filter(|it| it.trial == Trial::InSequence);
    let whats: Vec<_> = in_sequence.map(|it| &it.what).collect();
    assert!(
        matches!(whats[..], [What::Differs { .. }, What::Repeated { effects: 2.., .. }]),
        "{whats:?}"
    );
    let text = report.to_string();
    assert!(
        text.contains("duplicates one after the other") && text.contains("one key, 2 effects"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_checks_and_then_acts_is_found_at_once() {
    let shop = Shop::default();
    let of_handler = shop.clone();
    // In a task of its own, so that this is its only fault.
    let handler = async move |headers: HeaderMap| {
        let shop = of_handler.clone();
        let work = async move {
            let key = key(&headers);
            if let Some(answer) = shop.answer(&key) {
                return answer;
            }
            let answer = shop.charge().await;
            shop.keep(&key, &answer);
            answer
        };
        tokio::spawn(work).await.unwrap()
    };
    let report = shop.try_out(Router::new().route("/charges", post(handler))).await;
    assert!(report.has(Trial::AtOnce) && !report.has(Trial::InSequence), "{report}");
    assert!(report.to_string().contains("duplicates at the same time"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_cancelled_with_its_client_is_found_by_hanging_up() {
    let shop = Shop::default();
    let of_handler = shop.clone();
    let locks: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>> = Arc::default();
    // One caller of a key at a time, but on the connection of the client.
    let handler = async move |headers: HeaderMap| {
        let (shop, key) = (of_handler.clone(), key(&headers));
        let lock = locks.lock().unwrap().entry(key.clone()).or_default().clone();
        let _held = lock.lock().await;
        if let Some(answer) = shop.answer(&key) {
            return answer;
        }
        let answer = shop.charge().await;
        shop.keep(&key, &answer);
        answer
    };
    let report = shop.try_out(Router::new().route("/charges", post(handler))).await;
    assert!(report.has(Trial::HangUp), "{report}");
    assert!(!report.has(Trial::InSequence) && !report.has(Trial::AtOnce), "{report}");
    let twice = report.findings.iter().find(|it| it.trial == Trial::HangUp).unwrap();
    assert!(matches!(twice.what, What::Repeated { effects: 2, at_poll: Some(_) }), "{report}");
    assert!(report.to_string().contains("the client hung up after poll"));
    assert!(report.to_string().starts_with("not once: 1 of "), "{report}");
}

/// A request that is wrong in the test itself would pass every trial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_refuses_every_request_has_shown_nothing() {
    let shop = Shop::default();
    let handler = async || (StatusCode::UNPROCESSABLE_ENTITY, "no such account");
    let report = shop.try_out(guarded(Router::new().route("/charges", post(handler)))).await;
    assert!(!report.is_once(), "{report}");
    let [finding] = &report.findings[..] else { panic!("{report}") };
    assert!(
        matches!(&finding.what, What::NoEffect { last } if last.starts_with("422 ")),
        "{report}"
    );
}

/// The effect happens once more when it was counted already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_that_comes_after_the_count_is_found() {
    let shop = Shop::default();
    let (of_handler, is_late) = (shop.clone(), Arc::new(AtomicBool::new(false)));
    let late = is_late.clone();
    let handler = async move || {
        late.store(true, Ordering::SeqCst);
        (StatusCode::CREATED, of_handler.charge().await)
    };
    let app = guarded(Router::new().route("/charges", post(handler)));
    let effects = async || {
        let counted = shop.charges.load(Ordering::SeqCst);
        if is_late.swap(false, Ordering::SeqCst) {
            shop.charges.fetch_add(1, Ordering::SeqCst);
        }
        counted
    };
    let report = twice(app, request, effects).await;
    println!("{report}");
    let late = report.findings.iter().filter(|it| it.what == What::Late { effects: 1 });
    assert_eq!(late.count(), report.operations, "{report}");
}

/// Keeps the key of a failed execution for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_key_is_never_free_again_is_found_by_a_failure() {
    let shop = Shop::default();
    let (of_handler, of_failure) = (shop.clone(), shop.clone());
    let handler = async move |headers: HeaderMap| {
        let (shop, key) = (of_handler.clone(), key(&headers));
        let claimed = shop.answers.lock().unwrap().insert(key.clone(), String::new());
        if let Some(answer) = claimed {
            if answer.is_empty() {
                return StatusCode::CONFLICT.into_response();
            }
            shop.keep(&key, &answer);
            return answer.into_response();
        }
        if shop.fails.swap(false, Ordering::SeqCst) {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        let number = shop.charges.fetch_add(1, Ordering::SeqCst);
        shop.keep(&key, &format!("charge {number}"));
        format!("charge {number}").into_response()
    };
    let app = Router::new().route("/charges", post(handler));
    let effects = async || shop.charges.load(Ordering::SeqCst);
    let fail = async || of_failure.fails.store(true, Ordering::SeqCst);
    let report = twice_with_failure(app, request, effects, fail).await;
    println!("{report}");
    assert!(report.has(Trial::Failure), "{report}");
    let failure = report.findings.iter().find(|it| it.trial == Trial::Failure).unwrap();
    assert!(matches!(failure.what, What::NoAnswer { .. }), "{report}");
}
