//! Idempotency keys that hold: at most one execution per operation, and every retry gets the first answer.

pub mod clock;
pub mod engine;
pub mod fingerprint;
#[cfg(feature = "tower")]
pub mod http;
pub mod key;
#[cfg(feature = "tower")]
mod once;
pub mod policy;
pub mod record;
pub mod scope;
pub mod store;

mod body;
mod hex;
mod pointer;

#[cfg(feature = "tower")]
pub use once::{
    Attempt, Counts, Failure, Left, Limits, Once, OnceError, Operation, Outcome, Settings,
};
pub use policy::Policy;
