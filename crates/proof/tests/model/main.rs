//! The engine, explored exhaustively: every order of requests, crashes, pauses, lost and late store calls, reaps, sweeps,
//! operators and clock jumps, within a budget.
//!
//! The decisions are the engine's own: `decide`, `Write`, `Lapses`, `cas`, `Reading::trusted` and the table are called, not
//! copied. What is restated here is what the running engine does around them: `once/claim.rs`, `once/perform.rs`,
//! `once/settle.rs`, `once/disown.rs`, `once/wait.rs` and `once/cache.rs`.
//!
//! Left out, because the same writes are here under another name: `hold_max` settles an unknown outcome as an operator does, a
//! draining process releases as a request does that found nobody to send to, and a task that dies ends its claim as a task does
//! that lives. Left out altogether: `recovery = "release"` and `store_down = "pass"`, which promise less.

mod background;
mod calls;
mod choices;
mod claiming;
mod clocks;
mod flips;
mod hashed;
mod outbox;
mod promises;
mod protocol;
mod reached;
mod request;
mod settling;
mod store;
mod transactions;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

use clocks::REDRIVE_MS;
use onlyonce::policy::{Absent, Recovery};
use proof::tier::is_full;
use protocol::Protocol;
use reached::reached;
use stateright::{Checker, Model};
use world::Budget;

#[test]
fn held_outcomes_never_run_twice_and_have_one_answer() {
    let states = explore(Recovery::Hold);
    let floor = if is_full() { 10_000_000 } else { 100_000 };
    assert!(states >= floor, "{states} states are too few to prove anything");
}

#[test]
fn failed_outcomes_never_run_twice_and_have_one_answer() {
    explore(Recovery::Fail);
}

// threat A9
#[test]
fn redriven_outcomes_have_one_effect_and_one_answer() {
    explore(redrive());
}

#[test]
fn reconciled_outcomes_never_run_twice_and_have_one_answer() {
    explore(Recovery::Reconcile { absent: Absent::Hold, quiet: Duration::from_secs(90) });
}

/// Sends unknown outcomes again, for a while.
fn redrive() -> Recovery {
    Recovery::Redrive { within: Duration::from_millis(REDRIVE_MS.unsigned_abs()) }
}

/// Explores all budgets to their end; how many distinct states there are.
fn explore(recovery: Recovery) -> usize {
    let budgets: &[Budget] = match recovery {
        Recovery::Hold if is_full() => &FULL_HOLD,
        _ if is_full() => &FULL,
        _ => &FAST,
    };
    let mut met = BTreeSet::new();
    let mut states = 0;
    for budget in budgets {
        let checker =
            Protocol::new(recovery, *budget).checker().threads(THREADS).spawn_bfs().join();
        println!("{recovery:?}, {budget:?}: {} distinct states", checker.unique_state_count());
        states += checker.unique_state_count();
        for (name, path) in checker.discoveries() {
            let is_met = reached(recovery).iter().any(|property| property.name == name);
            assert!(
                is_met,
                "not so: {name}, {:?}: {:?}",
                path.last_state(),
                path.clone().into_actions()
            );
            met.insert(name);
        }
    }
    let missed: Vec<_> =
        reached(recovery).iter().map(|p| p.name).filter(|name| !met.contains(name)).collect();
    assert!(missed.is_empty(), "never met: {missed:?}");
    states
}

const NOTHING: Budget = Budget {
    sent: 2,
    crashes: 0,
    faults: 0,
    short: 0,
    long: 0,
    jumps: 0,
    operators: 0,
    deadlines: 0,
};
/// One fault of each kind, in every order; time that passes, with a clock that is set; and a deadline.
const FAST: [Budget; 3] = [
    Budget { crashes: 1, faults: 1, short: 2, operators: 1, ..NOTHING },
    Budget { long: 1, jumps: 1, operators: 1, ..NOTHING },
    Budget { faults: 1, operators: 1, deadlines: 1, ..NOTHING },
];
/// Two faults that meet; faults and a clock that is set; faults and a key that is forgotten; a clock that is set twice.
const FULL: [Budget; 4] = [
    Budget { crashes: 1, faults: 2, short: 2, operators: 1, ..NOTHING },
    Budget { crashes: 1, faults: 1, long: 1, jumps: 1, operators: 1, ..NOTHING },
    Budget { crashes: 1, faults: 1, short: 2, long: 1, operators: 1, ..NOTHING },
    Budget { long: 2, jumps: 2, ..NOTHING },
];
/// Where unknown outcomes are held: the same with three requests, and with deadlines.
const FULL_HOLD: [Budget; 5] = [
    Budget { deadlines: 1, ..FULL[0] },
    FULL[1],
    FULL[2],
    FULL[3],
    Budget { sent: 3, crashes: 1, faults: 1, short: 2, operators: 1, ..NOTHING },
];
const THREADS: usize = 2;
