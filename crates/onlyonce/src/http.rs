//! The tower layer: the promise around any HTTP service.
//!
//! 1. A request without a key, or whose method is not guarded, passes untouched.
//! 2. A key is claimed durably before the inner service is called, and its answer is stored durably
//!    before the last byte of it leaves.
//! 3. A retry gets the stored answer, byte for byte, with `Idempotent-Replayed: true`. The same key
//!    with another request gets 422, while the first still runs 409, and where nobody knows whether it
//!    was executed 409 as well: never a second execution.
//! 4. From the claim on, the work runs in a task of its own. A client that hangs up changes nothing.
//! 5. The path that counts is the one that the client sent. Below routers that strip a prefix this needs no help in
//!    axum 0.8, and yours elsewhere: see [`Once::layer`](crate::Once::layer).
//!
//! **An outer timeout no longer bounds the work**, and neither does anything else that drops the
//! response future: the caller is answered, the work goes on. [`Policy::upstream_timeout`] bounds it.
//! Authenticate *outside* this layer: a replay must not be shown to whoever lost the right to see it.
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
//! [`Policy::upstream_timeout`]: crate::Policy::upstream_timeout

mod body;
mod capture;
mod client_uri;
mod headers;
mod layer;
mod look_up;
mod observe;
pub mod problem;
mod request;
mod service;

pub use body::Body;
pub use client_uri::ClientUri;
pub use headers::kept as kept_headers;
pub use layer::{Guarded, OnceLayer, Who};

/// Put it among the extensions of a response to prove that nothing was sent on: the claim is given
/// back, and the response passes as it is. Anything else after `call` counts as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSent;

/// Among the extensions of a response that the layer made: a refusal, a replay, the state of an operation. What
/// the inner service answered does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAnswer;

/// Put it among the extensions of a response whose body has neither a length nor chunks, so that only the end of the
/// connection ends it (HTTP/1.0, and HTTP/1.1 without `Content-Length`): the end cannot be told from a break. The
/// body is kept only if it is one whole JSON object or array; else a retry gets 410, and the first caller what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntilClose;

/// On a replay, and on nothing else.
pub const IDEMPOTENT_REPLAYED: http::HeaderName =
    http::HeaderName::from_static("idempotent-replayed");
/// What the inner service sees: the number of the attempt.
pub const IDEMPOTENCY_ATTEMPT: http::HeaderName =
    http::HeaderName::from_static("idempotency-attempt");
/// How the inner service overrules what its status says: `store`, `release` or `unknown`.
pub const IDEMPOTENCY_STORE: http::HeaderName = http::HeaderName::from_static("idempotency-store");
