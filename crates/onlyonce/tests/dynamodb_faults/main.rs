//! What the store in DynamoDB does when calls are lost, refused or throttled; what its operations cost; and answers in parts.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod answers;
mod cost;
mod emulator;
mod lab;
mod listing;
mod paused;
mod regions;
mod unsure;
mod waiting;
