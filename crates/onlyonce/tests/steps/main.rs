//! Operations of several steps, in Postgres and in SQLite.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod calls;
mod changed;
mod completing;
mod cut;
mod isolation;
mod killed;
mod lab;
mod left_open;
mod operators;
#[cfg(feature = "tower")]
mod over_http;
mod provider;
mod saga;
mod search_path;
mod shop;
#[cfg(feature = "tower")]
mod told;
mod unreadable;
mod zombies;
