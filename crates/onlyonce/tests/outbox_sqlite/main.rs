//! The outbox relay over a SQLite file.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

#[path = "../outbox/book.rs"]
mod book;
mod crashes;
mod file;
mod lab;
mod order;
mod poison;
#[path = "../outbox/suspects.rs"]
mod suspects;
mod suspects_in_sqlite;
