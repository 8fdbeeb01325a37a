//! What the real binary tells those who operate it: logs, metrics and traces, and never a key.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod canary;
mod lab;
mod logs;
mod ops;
mod traces;
