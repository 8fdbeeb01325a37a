//! Every cell of the table is flipped in turn: what may not happen is done, and what may happen is forbidden. A flip must break
//! a promise; the table itself is not asked.

use onlyonce::engine::Write;
use onlyonce::engine::table::{Phase, RecordEvent};
use onlyonce::policy::Recovery;
use onlyonce::record::SettledBy;
use onlyonce::store::cas::{self, Effect};
use onlyonce::store::{Guard, Next};
use proof::tier::is_full;
use stateright::{Checker, HasDiscoveries, Model};

use crate::protocol::Protocol;
use crate::request::{BY_OPERATOR, draft, response, token};
use crate::world::Budget;
use crate::{NOTHING, THREADS, redrive};

// threat J17
#[test]
fn a_table_with_any_flipped_cell_breaks_a_promise() {
    let mut surprises = Vec::new();
    let mut caught = 0;
    for (phase, event) in cells().filter(|(phase, event)| is_asked(*phase, *event)) {
        let is_harmless = HARMLESS.iter().any(|(p, e, _)| (*p, *e) == (phase, event));
        // A flip that does no harm is explored to its end, which takes its time.
        if is_harmless && !is_full() {
            continue;
        }
        let broken = broken_by(phase, event);
        println!("{phase:?} {event:?}: {}", broken.as_deref().unwrap_or("nothing is broken"));
        caught += usize::from(broken.is_some());
        if broken.is_some() == is_harmless {
            surprises.push((phase, event, broken));
        }
    }
    println!("{caught} flipped cells break a promise, {} do no harm", HARMLESS.len());
    assert!(surprises.is_empty(), "cell, and the promise that its flip breaks: {surprises:#?}");
    assert_eq!(caught + HARMLESS.len() + NOT_ASKED, cells().count());
}

fn cells() -> impl Iterator<Item = (Phase, RecordEvent)> {
    Phase::ALL.into_iter().flat_map(|phase| RecordEvent::ALL.map(|event| (phase, event)))
}

/// The promise that the flip breaks, if it breaks one.
fn broken_by(phase: Phase, event: RecordEvent) -> Option<String> {
    let recovery = match event {
        RecordEvent::Redrive => redrive(),
        _ => Recovery::Hold,
    };
    let protocol = Protocol::new(recovery, budget(phase, event)).with_flip(phase, event);
    let checker = protocol.checker().threads(THREADS).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let states = checker.unique_state_count();
    let (name, path) = checker.discoveries().into_iter().next()?;
    let wrong = path.last_state().wrong;
    let broken = wrong.map_or_else(|| format!("not so: {name}"), |wrong| format!("{wrong:?}"));
    Some(format!("{broken}, after {states} states"))
}

/// As little as the cell needs to be met.
fn budget(phase: Phase, event: RecordEvent) -> Budget {
    match (phase, event) {
        (Phase::Expired, _) => Budget { long: 1, operators: 1, ..NOTHING },
        // Two different answers of one owner.
        (Phase::Completed, RecordEvent::Settle) => Budget { faults: 2, ..NOTHING },
        (Phase::Running, RecordEvent::Renew) | (Phase::Unknown, RecordEvent::Reap) => {
            Budget { short: 1, ..NOTHING }
        }
        // It is released first.
        (Phase::Released, RecordEvent::SettleFor | RecordEvent::Forget) => {
            Budget { operators: 2, ..NOTHING }
        }
        _ => Budget { crashes: 1, faults: 1, operators: 1, deadlines: 1, ..NOTHING },
    }
}

/// Whether anything in the model asks this cell.
fn is_asked(phase: Phase, event: RecordEvent) -> bool {
    match phase {
        // Operators erase answers, and nobody of the model does: the outcome stays as it is.
        _ if event == RecordEvent::Erase => false,
        // A guard names a token or a revision, and where there is no record there is neither.
        Phase::Absent => event == RecordEvent::Claim,
        // An owner's guard names stored states, and expiry is not stored.
        Phase::Expired => !is_owners(event),
        _ => true,
    }
}

fn is_owners(event: RecordEvent) -> bool {
    use RecordEvent::{MarkUnknown, Release, Renew, Settle};
    matches!(event, Settle | Release | MarkUnknown | Renew)
}

#[test]
fn cells_that_nobody_asks_are_those_that_no_guard_can_name() {
    assert_eq!(cells().filter(|(phase, event)| !is_asked(*phase, *event)).count(), NOT_ASKED);
    let start = onlyonce::clock::StoreTime::from_ms(0);
    let running = cas::claim(None, &draft(0, 1, start), start).unwrap();
    let settled = cas::swap(Some(&running), &owner_guard(RecordEvent::Settle), &completed(), start);
    let Effect::Write(record) = settled else { panic!("{settled:?}") };
    let long_after = start.plus_ms(2 * record.ttl_ms);
    assert!(record.is_expired(long_after) && !record.is_expired(start));
    let nexts = [
        Next::Unknown { since: None },
        Next::Released { expires_at: None },
        completed(),
        Next::Absent,
    ];
    for next in nexts {
        for event in RecordEvent::ALL {
            let guards = [owner_guard(event), Guard::Unchanged(record.revision())];
            for guard in guards {
                let done = cas::swap(None, &guard, &next, start);
                assert!(matches!(done, Effect::Stale | Effect::Already(_)), "{event:?}: {done:?}");
            }
            let of = |now| {
                std::mem::discriminant(&cas::swap(Some(&record), &owner_guard(event), &next, now))
            };
            assert_eq!(of(start), of(long_after), "{event:?} of an owner whose record has expired");
        }
    }
}

fn owner_guard(event: RecordEvent) -> Guard {
    let Guard::Owner { token, .. } = Write::mark_unknown(token(1)).guard else {
        unreachable!("an owner's write")
    };
    Guard::Owner { token, states: event.states() }
}

fn completed() -> Next {
    Next::Completed { settled_by: SettledBy::Owner, response: response(BY_OPERATOR), token: None }
}

const NOT_ASKED: usize = 20;

/// Cells whose flip breaks no promise, each with the reason.
const HARMLESS: [(Phase, RecordEvent, &str); 4] = [
    (
        Phase::Unknown,
        RecordEvent::MarkUnknown,
        "the record already is what the write makes it, and the store says so before it asks the guard",
    ),
    (
        Phase::Completed,
        RecordEvent::Release,
        "an owner that releases has never sent, so that it has never settled, and who settles for it takes a new token",
    ),
    (
        Phase::Released,
        RecordEvent::ReleaseFor,
        "the key stays free for a new attempt, and is only remembered for longer",
    ),
    (
        Phase::Expired,
        RecordEvent::Forget,
        "the time of the record is over, and the sweep deletes it in the same way",
    ),
];
