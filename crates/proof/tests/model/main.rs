//! The engine, explored exhaustively: every order of requests, crashes, pauses, lost and late store calls, reaps, sweeps,
//! operators and clock jumps, within a budget.
//!
//! The decisions are the engine's own: `decide`, `Write`, `Lapses`, `cas`, `Reading::trusted` and the table are called, not
//! copied. What is restated here is what the running engine does around them: `once/claim.rs`, `once/perform.rs`,
//! `once/settle.rs` and `once/disown.rs`.

mod background;
mod choices;
mod claiming;
mod flips;
mod hashed;
mod promises;
mod protocol;
mod reached;
mod request;
mod settling;
mod store;
mod world;

use std::collections::BTreeSet;
use std::time::Duration;

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

#[test]
fn redriven_outcomes_have_one_effect_and_one_answer() {
    explore(Recovery::Redrive { within: Duration::from_secs(23 * 3_600) });
}

#[test]
fn reconciled_outcomes_never_run_twice_and_have_one_answer() {
    explore(Recovery::Reconcile { absent: Absent::Hold, quiet: Duration::from_secs(90) });
}

/// Explores all budgets to their end; how many distinct states there are.
fn explore(recovery: Recovery) -> usize {
    let budgets: &[Budget] = if is_full() { &FULL } else { &FAST };
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
/// One fault of each kind, in every order; and time that passes, with a clock that is set.
const FAST: [Budget; 2] = [
    Budget { crashes: 1, faults: 1, short: 2, operators: 1, deadlines: 1, ..NOTHING },
    Budget { long: 1, jumps: 1, ..NOTHING },
];
/// Three requests, and two faults that meet.
const FULL: [Budget; 3] = [
    Budget { sent: 3, crashes: 1, faults: 1, short: 2, operators: 1, ..NOTHING },
    Budget { crashes: 1, faults: 2, short: 2, operators: 1, ..NOTHING },
    Budget { crashes: 1, faults: 1, short: 2, long: 1, jumps: 1, operators: 1, ..NOTHING },
];
const THREADS: usize = 2;

#[test]
fn zz_measure() {
    let Ok(text) = std::env::var("MEASURE") else { return };
    let n: Vec<u8> = text.split(',').map(|n| n.parse().unwrap()).collect();
    let budget = Budget {
        sent: n[0],
        crashes: n[1],
        faults: n[2],
        short: n[3],
        long: n[4],
        jumps: n[5],
        operators: n[6],
        deadlines: n[7],
    };
    let recovery = match n[8] {
        0 => Recovery::Hold,
        1 => Recovery::Fail,
        2 => Recovery::Redrive { within: Duration::from_secs(23 * 3_600) },
        _ => Recovery::Reconcile { absent: Absent::Hold, quiet: Duration::from_secs(90) },
    };
    let protocol = Protocol::new(recovery, budget).checker().threads(THREADS);
    let checker = if n.get(9) == Some(&1) {
        println!("dfs");
        let c = protocol.spawn_dfs().join();
        report(recovery, &c);
        return;
    } else {
        protocol.spawn_bfs().join()
    };
    report(recovery, &checker);
}

fn report(recovery: Recovery, checker: &impl Checker<Protocol>) {
    println!(
        "{} states, {} generated, depth {}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth()
    );
    for (name, path) in checker.discoveries() {
        let is_met = reached(recovery).iter().any(|property| property.name == name);
        println!(
            "{name} {}",
            if is_met {
                String::new()
            } else {
                format!("{:#?} {:#?}", path.last_state(), path.clone().into_actions())
            }
        );
    }
}
