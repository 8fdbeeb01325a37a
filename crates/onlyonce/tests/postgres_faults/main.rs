//! The Postgres store among servers that fail, lock, lie about the time, and are not what they should be.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod clock;
mod connections;
mod lab;
mod nodes;
mod opening;
mod proxy;
mod running;
mod servers_die;
mod sqlstates;
mod statements;
mod sweeping;
