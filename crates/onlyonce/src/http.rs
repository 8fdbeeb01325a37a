//! The tower layer: runs the keyed requests of any HTTP service at most once.
//!
//! 1. A request without a key, or whose method is not guarded, passes untouched.
//! 2. A key is claimed durably before the inner service is called, and its answer is stored durably
//!    before the last byte of it leaves.
//! 3. A retry gets the stored answer, byte for byte, with `Idempotent-Replayed: true`. The same key with another
//!    request gets 422. A retry gets 409 while the first request still runs, and also where the outcome of the first
//!    request is unknown: it is never executed a second time.
//! 4. From the claim on, the work runs in a task of its own. A client that hangs up changes nothing.
//! 5. Scope and fingerprint use the path that the client sent. In axum 0.8 this works below routers that strip a prefix;
//!    with other routers you must pass the path on: see [`Once::layer`](crate::Once::layer).
//!
//! **An outer timeout no longer bounds the work**, and neither does anything else that drops the
//! response future: the caller is answered, and the work goes on. [`Policy::with_upstream_timeout`] bounds the work.
//! Authenticate *outside* this layer: a replay must not be shown to a caller who lost the right to see it. Where the inner
//! service authenticates, [`OnceLayer::with_authorizer`] asks before a caller is answered from a record.
//!
//! ```
//! # #[cfg(feature = "memory")] {
//! use axum::{Router, http::request::Parts, routing::post};
//! use onlyonce::{Once, Policy, scope::Principal, store::memory::MemoryStore};
//!
//! // Without an API key a keyed request is refused with 401: strangers must not share their keys.
//! fn caller(head: &Parts) -> Option<Principal> {
//!     let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
//!     Some(Principal::of("api-key", api_key.as_bytes()))
//! }
//!
//! let once = Once::new(MemoryStore::new());
//! let app: Router = Router::new()
//!     .route("/charges", post(|| async { "charged" }))
//!     .layer(once.layer(caller, Policy::payments()));
//! # }
//! ```
//!
//! [`Policy::with_upstream_timeout`]: crate::Policy::with_upstream_timeout

mod body;
pub(crate) mod capture;
mod client_uri;
mod deadline;
pub(crate) mod early_data;
mod event_stream;
pub(crate) mod for_caller;
pub mod grpc;
pub(crate) mod headers;
mod json_rpc;
mod key_age;
mod layer;
mod location;
mod look_up;
mod observe;
mod overrides;
pub mod problem;
mod repeatability;
pub(crate) mod request;
pub(crate) mod service;
pub(crate) mod token;
mod velocity;

pub use body::Body;
pub use client_uri::ClientUri;
pub use headers::kept as kept_headers;
pub use layer::{Guarded, OnceLayer, Who};
pub use overrides::Overrides;

/// An inner service puts this among the extensions of a response to prove that it sent nothing on: the claim is
/// released, and the response passes as it is. Without it every request that was called counts as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSent;

/// The layer puts this among the extensions of each response that it made itself: a refusal, a replay, the state of an
/// operation. A response of the inner service does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAnswer;

/// An inner service puts this among the extensions of a response whose body has neither a length nor chunks, so that
/// only the end of the connection ends it (HTTP/1.0, and HTTP/1.1 without `Content-Length`): such an end cannot be told
/// from a lost connection. The body is kept only if it is one whole JSON object or array. Otherwise the first caller
/// gets what arrived, and a retry gets 410.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntilClose;

/// The header that marks a replay. No other answer has it.
pub const IDEMPOTENT_REPLAYED: http::HeaderName =
    http::HeaderName::from_static("idempotent-replayed");
/// The header that tells the inner service the number of the attempt.
pub const IDEMPOTENCY_ATTEMPT: http::HeaderName =
    http::HeaderName::from_static("idempotency-attempt");
/// The header by which the inner service decides what is kept of its answer, instead of its status: `store`, `release`
/// or `unknown`.
pub const IDEMPOTENCY_STORE: http::HeaderName = http::HeaderName::from_static("idempotency-store");
