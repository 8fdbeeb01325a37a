//! What the library tells those who operate it: counts, latencies, spans and events, and never a key.

#![cfg(all(feature = "memory", feature = "tower"))]

mod faults;

#[path = "signals/canary.rs"]
mod canary;
#[path = "signals/counts.rs"]
mod counts;
#[path = "signals/events.rs"]
mod events;
#[path = "signals/log.rs"]
mod log;
