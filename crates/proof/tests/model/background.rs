//! The reaper and the operators: they judge a record that they have read, and write if it has not changed since.

use std::time::Duration;

use onlyonce::engine::Write;
use onlyonce::engine::lapse::Lapses;
use onlyonce::engine::table::{Phase, RecordEvent};
use onlyonce::record::{Record, SettledBy, State};
use onlyonce::scope::OperationId;
use onlyonce::store::{Guard, Next};

use crate::hashed::Asked;
use crate::protocol::{Pace, Protocol};
use crate::request::{BY_OPERATOR, STRANGER, as_stranger, response, token};
use crate::world::{Event, Late, World};

impl Protocol {
    /// The reaper remembers what it sees, and reaps what it has seen unchanged for a lease.
    pub(crate) fn reap(&self, world: &mut World, pace: Pace) {
        let Some(record) = world.record.clone() else { return };
        let revision = record.revision();
        let write = match (&record.state, world.sight) {
            (State::Running { .. }, Some((seen, at))) if seen == revision => {
                lapsed(&record, at, world)
            }
            (State::Running { .. }, _) => {
                world.sight = Some((revision, world.clocks.boot_ms));
                None
            }
            // It looks at nothing else, unless a flipped cell lets it.
            _ => Some(Write::reap(revision)),
        };
        if let Some(write) = write {
            self.write(world, RecordEvent::Reap, write, pace);
        }
    }

    /// An operator settles, releases or forgets the record.
    pub(crate) fn operate(&self, world: &mut World, event: RecordEvent, pace: Pace) {
        world.budget.operators -= 1;
        let Some(record) = world.record.clone() else { return };
        let answer = response(BY_OPERATOR);
        let settled_by = SettledBy::Operator;
        let (write, next) = match event {
            RecordEvent::SettleFor => (
                Write::settle_for(&record, settled_by, answer.clone()).map(as_stranger),
                Next::Completed { settled_by, response: answer, token: Some(token(STRANGER)) },
            ),
            RecordEvent::ReleaseFor => {
                let write = Write::release_for(&record, world.clocks.trusted(), true);
                (write, Next::Released { expires_at: None })
            }
            _ => (Write::forget(&record), Next::Absent),
        };
        // Where a flipped cell allows what the engine refuses, it is done all the same.
        let raw = || Write { guard: Guard::Unchanged(record.revision()), next, about: None };
        self.write(world, event, write.unwrap_or_else(raw), pace);
    }

    fn write(&self, world: &mut World, event: RecordEvent, write: Write, pace: Pace) {
        let phase = Phase::of(world.record.as_deref(), world.clocks.trusted());
        let event = Event(event, Some(phase));
        if pace == Pace::Later {
            world.budget.faults -= 1;
            world.late.push(Late::Swap(event, Asked::new(write)));
        } else {
            self.swap(world, event, &write);
        }
    }
}

/// The engine's own judgement, of a reaper that first saw this revision `at`.
fn lapsed(record: &Record, at: i64, world: &World) -> Option<Write> {
    let mut lapses = Lapses::default();
    let id = OperationId::from_bytes([1; 16]);
    lapses.begin();
    lapses.judge(id, record, world.clocks.store(), Duration::from_millis(at.unsigned_abs()));
    lapses.judge(id, record, world.clocks.store(), world.clocks.boot())
}
