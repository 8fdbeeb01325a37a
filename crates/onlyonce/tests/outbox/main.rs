//! The outbox relay, against a real Postgres and Redis and a small HTTP receiver.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod crashes;
mod lab;
mod order;
mod outages;
mod poison;
mod redis_streams;
mod webhooks;
