//! The locks of the maps that callers share. The tests put locks in their place whose order a scheduler decides
//! (`crates/proof/tests/shuttle`).

pub(super) use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
