//! Idempotency keys that hold: at most one execution per operation, and every retry gets the first answer.

pub mod clock;
pub mod fingerprint;
pub mod record;
pub mod scope;
pub mod store;
