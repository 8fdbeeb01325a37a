//! The audit trail, on every store that keeps one.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod crash;
mod dynamodb;
#[path = "../dynamodb_faults/emulator.rs"]
mod emulator;
mod lab;
mod life;
mod overload;
mod postgres;
mod retention;
mod tampering;
