//! The admin API and the commands that call it, with the real binary.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod audit;
mod authz;
mod bulk;
mod commands;
mod described;
mod heavy_scale;
mod lab;
mod operations;
mod outside;
mod stores;
mod stream;
