//! Idempotency keys that hold: at most one execution per operation, and every retry gets the first answer.

pub mod fingerprint;
pub mod key;
pub mod scope;

mod body;
mod hex;
mod pointer;
