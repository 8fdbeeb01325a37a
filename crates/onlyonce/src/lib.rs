//! Idempotency keys that hold: at most one execution per operation, and every retry gets the first answer.
//!
//! A client sends `POST /charges`, the answer is lost, and the client sends the request again. With this crate the
//! second request is harmless.
//!
//! # Around an HTTP service
//!
//! One engine per store, one layer per route. The client sends an `Idempotency-Key`; a retry with the
//! same key gets the first answer, byte for byte.
//!
//! ```no_run
//! # #[cfg(feature = "sqlite")]
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::{Router, http::request::Parts, routing::post};
//! use onlyonce::{Once, Policy, scope::Principal, store::sqlite::SqliteStore};
//!
//! // The caller. There is no default, because a wrong one shows one caller the answer of another. Without an
//! // API key a keyed request is refused with 401: strangers must not share their keys.
//! fn caller(head: &Parts) -> Option<Principal> {
//!     let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
//!     Some(Principal::of("api-key", api_key.as_bytes()))
//! }
//!
//! let once = Once::new(SqliteStore::open("onlyonce.db").await?);
//! let app: Router = Router::new()
//!     .route("/charges", post(|| async { "charged" }))
//!     .layer(once.layer(caller, Policy::payments()));
//! # Ok(())
//! # }
//! ```
//!
//! The answers that the client sees are in [`http`]. [`Policy`] has presets, and a `with_*` for every rule that says
//! its default and the risk of changing it.
//!
//! # Around a job or a message
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use onlyonce::{Failure, Once, Operation, Outcome, scope::Principal, store::memory::MemoryStore};
//!
//! let once = Once::new(MemoryStore::new());
//! let order = Operation::new("ship-order", Principal::of("queue", b"orders"), "order-4711")?;
//! let shipped = once.run(order, |attempt| async move {
//!     let label_key = attempt.derive("label"); // the same at every attempt
//!     # let stock = 1;
//!     if stock == 0 {
//!         return Err(Failure::not_done("no stock")); // nothing happened: the key is free again
//!     }
//!     Ok(label_key) // any other error, passed on with `?`: the work may have happened, and is not run again
//! });
//! match shipped.await? {
//!     Outcome::Fresh(label) | Outcome::Replayed(label) => println!("shipped with {label}"),
//!     Outcome::InProgress { retry_after } => println!("runs elsewhere; ask again in {retry_after:?}"),
//!     Outcome::Reused => println!("this key belongs to another order"),
//!     Outcome::Unknown { .. } => println!("may have run: find out, then settle the operation"),
//! }
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "memory"))]
//! # fn main() {}
//! ```
//!
//! # What is promised
//!
//! 1. **At most once.** Each accepted operation ends *completed*, *released* (proved never sent) or
//!    *unknown*, and an unknown one is never run again by itself: not after a crash, a pause, a lost
//!    reply of the store or a jump of its clock.
//! 2. **The same answer.** Every retry gets the answer of the first caller, while the key is kept.
//! 3. **Callers are separate.** One caller never sees, blocks or detects the key of another.
//!
//! An operation is *unknown* when it was sent and its whole answer never came: the process died, the
//! handler panicked, or the timeout passed. [`policy::Recovery`] lists what may be done about it.
//!
//! # What to know
//!
//! - The work runs in a task of its own: **an outer timeout no longer bounds the work**, and a client that hangs
//!   up does not stop it. [`Policy::with_upstream_timeout`] bounds it.
//! - The promise is as good as the store. `sqlite` is durable and for one process, `postgres` for many; `redis` is as
//!   durable as its settings; `memory` forgets when the process ends. A store of your own is tested by
//!   `store::conformance`.
//! - Call [`Once::shutdown`] before the process ends: it waits for the operations under way, and returns how many it
//!   had to leave unknown.
//!
//! # Features
//!
//! | feature | what |
//! |---|---|
//! | `tower` (default) | with axum 0.8 or any service of tower-service 0.3: the layer, [`Once::layer`] |
//! | `run` | [`Once`] and [`Once::run`]; every store and `tower` turn it on |
//! | `sqlite` | with rusqlite 0.39 to 0.41: the embedded store, one file and one process; operations, and operations of several steps, in the caller's own SQLite file |
//! | `postgres` | the store for many nodes; with tokio-postgres 0.7, operations inside the caller's own transaction |
//! | `redis` | Redis as a store, and as a filter in front of another |
//! | `sqlx` | with sqlx 0.9: operations inside the caller's own sqlx transaction, and operations of several steps; with `tower`, a layer and an extractor for axum |
//! | `outbox` | the relay that ships the messages of transactions; with `redis`, to Redis Streams |
//! | `outbox-webhook` | the relay's messages as signed webhooks |
//! | `webhook` | webhooks in: `webhook::Verifier` tells genuine deliveries from forged ones |
//! | `seal` | answers and keys that nobody reads in the store without a key: `store::sealed` |
//! | `memory` | the store for tests |
//! | `client` | the `client`: one key per operation, retried to a known outcome; with a tower layer |
//! | `client-journal` | the client's journal: keys that outlive the process |
//! | `client-reqwest` | with reqwest 0.13 and reqwest-middleware 0.5: the client over them |
//! | `testing` | tests of your own service under duplicates: `testing::twice` |
//! | `crashpoints` | places at which the process dies when `ONLYONCE_CRASH` says so, for tests alone |
//! | `conformance` | the suite that every store passes |
//!
//! Types of these crates are in our own signatures, so their versions go together: with another one rustc finds "a different
//! `Pool<Postgres>`", and cargo refuses two that have `links = "sqlite3"` (docs/transactions.md tells which fit).
//!
//! Without features this crate is the engine alone: values, decisions and the store contract, with no async runtime
//! in its tree.

#![cfg_attr(docsrs, feature(doc_cfg))]

// A release with bugs that the environment can turn on is not one: `--all-features` is for tests.
#[cfg(all(any(feature = "planted", feature = "crashpoints"), not(debug_assertions)))]
compile_error!(
    "the features `planted` and `crashpoints` are for tests of the project and are refused in a release build; \
     build without --all-features and name the features that you need"
);

#[cfg(feature = "client")]
pub mod client;
pub mod clock;
pub mod code;
#[cfg(feature = "run")]
mod crash;
pub mod engine;
mod event;
pub mod fingerprint;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "tower")]
pub mod http;
pub mod key;
#[cfg(feature = "run")]
#[cfg_attr(
    not(feature = "tower"),
    expect(dead_code, reason = "the layer reads bodies, judges answers and asks reconcilers")
)]
mod once;
#[cfg(feature = "outbox")]
pub mod outbox;
#[doc(hidden)]
pub mod planted;
pub mod policy;
pub mod record;
pub mod scope;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub mod steps;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(any(feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub mod transaction;
pub mod velocity;
#[cfg(feature = "webhook")]
pub mod webhook;

mod body;
mod hex;
mod pointer;
#[cfg(feature = "run")]
#[cfg_attr(
    not(feature = "tower"),
    expect(dead_code, reason = "without the layer only an outcome that stays unknown is told")
)]
mod problem;
#[cfg(feature = "run")]
mod runtime_thread;
#[cfg(any(feature = "postgres", feature = "sqlx"))]
mod sqlstate;

#[cfg(feature = "crashpoints")]
pub use crash::CrashPoint;
pub use event::{By, ByError, EventKind};
#[cfg(feature = "run")]
pub use once::{
    Action, Attempt, Bulk, BulkRefusal, Cause, Counts, Events, Failure, Finding, Heard, IdChange,
    Latencies, Latency, Left, Limits, Once, OnceBuilder, OnceError, OperateError, Operation,
    OperationEvent, OperationFilter, OperationPage, Operations, Outcome, Permission, Question,
    Reconciler, RekeyingCaller, RevisionDigest, RevisionDigestError, RouteLatency, Selection,
    StoreCallLatency, StoredOperation,
};
pub use policy::Policy;
