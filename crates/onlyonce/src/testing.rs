//! Tests your service under duplicates: in sequence, at the same time, from clients that hang up, and after failures.
//!
//! You give the service, the request for a key, and how to count effects. Everything is sent in this process, so that a
//! client can hang up at every single poll.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use axum::{Router, http::Request, http::request::Parts, routing::post};
//! use onlyonce::{Once, Policy, scope::Principal, store::memory::MemoryStore, testing};
//!
//! let charges = Arc::new(AtomicU64::new(0));
//! let count = charges.clone();
//! let charge = async move || format!("charge {}", count.fetch_add(1, Ordering::SeqCst));
//! let layer = Once::new(MemoryStore::new()).layer(|_: &Parts| Principal::anonymous(), Policy::default());
//! let app = Router::new().route("/charges", post(charge)).layer(layer);
//!
//! let request = |key: &str| {
//!     Request::post("/charges").header("idempotency-key", key).body(r#"{"amount":7998}"#).unwrap()
//! };
//! testing::twice(app, request, async || charges.load(Ordering::SeqCst)).await.assert_once();
//! # }
//! ```

mod report;
mod trials;

use bytes::Bytes;
use http::{Request, Response};
use tower_service::Service;

pub use self::report::{Finding, Report, Trial, What};

use self::trials::Trials;
use crate::store::BoxError;

/// Runs `service` under duplicates, and reports what happened twice or got another answer.
///
/// `request` makes the request for a key; each operation has a key of its own. `effects` counts how often the effect has
/// happened until now, all keys together: nothing else may cause effects meanwhile. Effects that come after an operation was
/// counted are found too, until the last trial has ended. On a runtime with several threads duplicates really run at the same
/// time.
pub async fn twice<S, A, B>(
    service: S,
    request: impl Fn(&str) -> Request<B>,
    effects: impl AsyncFn() -> u64,
) -> Report
where
    S: Service<Request<axum::body::Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
    B: Into<Bytes>,
{
    let mut trials = Trials::new(service, request, effects);
    trials.run().await;
    trials.ended().await
}

/// [`twice`], and the retry after a failure of your own making: `fail` makes the next execution fail, for example by a
/// switch in your fake of a payment provider.
pub async fn twice_with_failure<S, A, B>(
    service: S,
    request: impl Fn(&str) -> Request<B>,
    effects: impl AsyncFn() -> u64,
    fail: impl AsyncFn(),
) -> Report
where
    S: Service<Request<axum::body::Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
    B: Into<Bytes>,
{
    let mut trials = Trials::new(service, request, effects);
    trials.run().await;
    fail().await;
    trials.failure().await;
    trials.ended().await
}
