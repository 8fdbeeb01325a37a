//! What the stores with Redis do when Redis is restarted, demoted, flushed, full, hung, or tampered with.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

#[path = "redis_faults/clock.rs"]
mod clock;
#[path = "redis_faults/filter.rs"]
mod filter;
#[path = "redis_faults/lab.rs"]
mod lab;
#[path = "redis_faults/nodes.rs"]
mod nodes;
#[path = "redis_faults/promise.rs"]
mod promise;
#[path = "redis_faults/proxy.rs"]
mod proxy;
#[path = "redis_faults/server.rs"]
mod server;
#[path = "redis_faults/silence.rs"]
mod silence;
#[path = "redis_faults/table.rs"]
mod table;
