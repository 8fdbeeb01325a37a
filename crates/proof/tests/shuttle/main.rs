//! The maps that callers of one process share, under orders of threads that shuttle's schedulers choose.
//!
//! The sources are the library's own files, compiled once more with shuttle's locks in the place of the standard ones.
//! Between two steps of a lock shuttle may run any other thread, so that a seldom order is tried as often as a usual one.

/// Where the library's files look for the types that they use.
mod scope {
    pub(crate) use onlyonce::scope::{OperationId, Principal};
}
mod once;

use proof::tier::tiered;

/// Tries the scenario under random schedules, and as many that favour seldom orders (PCT).
fn explore(scenario: impl Fn() + Copy + Send + Sync + 'static) {
    let schedules = if proof::tier::is_full() { 100_000 } else { tiered(20_000) };
    shuttle::check_random(scenario, schedules / 2);
    shuttle::check_pct(scenario, schedules / 2, PCT_DEPTH);
}

/// How many forced switches a PCT schedule has.
const PCT_DEPTH: usize = 3;
