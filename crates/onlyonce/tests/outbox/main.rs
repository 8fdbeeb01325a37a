//! The outbox relay, against a real Postgres, Redis and NATS, the Kafka broker of librdkafka and a small HTTP receiver.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod book;
mod counted;
mod crashes;
mod kafka;
mod lab;
mod nats;
mod order;
mod outages;
mod poison;
mod redis_streams;
mod search_path;
mod slow_link;
mod standard_webhooks;
mod suspects;
mod suspects_in_postgres;
mod webhooks;
