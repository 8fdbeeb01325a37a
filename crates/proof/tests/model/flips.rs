//! Every cell of the table is flipped in turn: what may not happen is done, and what may happen is forbidden.

use std::time::Duration;

use onlyonce::engine::table::{Phase, RecordEvent};
use onlyonce::policy::Recovery;
use proof::tier::is_full;
use stateright::{Checker, HasDiscoveries, Model};

use crate::protocol::Protocol;
use crate::{NOTHING, THREADS};
use crate::world::Budget;

#[test]
fn a_table_with_any_safety_cell_flipped_is_caught() {
    let mut surprises = Vec::new();
    let mut caught = 0;
    for (phase, event) in cells() {
        let harmless = HARMLESS.iter().find(|(p, e, _)| (*p, *e) == (phase, event));
        // A flip that does no harm is explored to its end, which takes its time.
        if harmless.is_some() && !is_full() {
            continue;
        }
        let is_caught = finds_fault(phase, event);
        println!("{phase:?} {event:?}: {}", if is_caught { "caught" } else { "not caught" });
        caught += usize::from(is_caught);
        if is_caught == harmless.is_some() {
            surprises.push((phase, event, is_caught));
        }
    }
    println!("{caught} flipped cells are caught, {} of {} are harmless", HARMLESS.len(), cells().count());
    assert!(surprises.is_empty(), "cell, and whether its flip was caught: {surprises:#?}");
    assert!(caught >= 30, "{caught}");
}

fn cells() -> impl Iterator<Item = (Phase, RecordEvent)> {
    Phase::ALL.into_iter().flat_map(|phase| RecordEvent::ALL.map(|event| (phase, event)))
}

fn finds_fault(phase: Phase, event: RecordEvent) -> bool {
    let routes = [Recovery::Hold, Recovery::Redrive { within: Duration::from_secs(23 * 3_600) }];
    routes.into_iter().any(|recovery| {
        let protocol = Protocol::new(recovery, FLIPPED).with_flip(phase, event);
        let checker = protocol.checker().threads(THREADS).finish_when(HasDiscoveries::AnyFailures);
        checker.spawn_bfs().join().discovery("nothing goes wrong").is_some()
    })
}

const FLIPPED: Budget = Budget { faults: 1, short: 1, operators: 1, ..NOTHING };

/// Cells whose flip breaks no promise, each with the reason.
const HARMLESS: [(Phase, RecordEvent, &str); 0] = [];
