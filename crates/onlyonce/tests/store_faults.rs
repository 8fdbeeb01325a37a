//! What becomes of a request when its store, its handler, its clock or its process fails.

#![cfg(all(feature = "memory", feature = "tower"))]

mod faults;

#[path = "store_faults/claims.rs"]
mod claims;
#[path = "store_faults/clocks.rs"]
mod clocks;
#[path = "store_faults/handlers.rs"]
mod handlers;
#[path = "store_faults/leases.rs"]
mod leases;
#[path = "store_faults/limits.rs"]
mod limits;
#[path = "store_faults/reconciling.rs"]
mod reconciling;
#[path = "store_faults/recovery.rs"]
mod recovery;
#[path = "store_faults/settling.rs"]
mod settling;
#[path = "store_faults/shutdown.rs"]
mod shutdown;
#[path = "store_faults/streams.rs"]
mod streams;
#[path = "store_faults/waiters.rs"]
mod waiters;
