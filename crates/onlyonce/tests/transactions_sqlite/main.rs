//! Operations inside a transaction of the caller's own SQLite file.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod disk;
mod installed;
mod killed;
mod lab;
mod operations;
mod races;
mod settings;
