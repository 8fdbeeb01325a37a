//! Operations inside the caller's own Postgres transaction, by SQL alone and through both Rust drivers.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod answer_rules;
mod expired;
mod functions;
mod inbox;
mod killed;
mod lab;
mod languages;
mod layer;
mod lost_commit;
mod messages;
mod nested;
mod over_sqlx;
mod over_tokio_postgres;
mod pooled;
mod races;
mod search_path;
mod silence;
mod versions;
