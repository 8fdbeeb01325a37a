//! The model's store: `cas` under the guards that the table allows.

use onlyonce::clock::StoreTime;
use onlyonce::engine::Write;
use onlyonce::engine::table::{Phase, RecordEvent, To};
use onlyonce::record::{Record, State, StateKind, StateSet, TakenFrom};
use onlyonce::store::cas::{self, Effect};
use onlyonce::store::{Draft, Guard, Next, Seen};

use crate::hashed::Held;
use crate::protocol::Protocol;
use crate::request::draft;
use crate::world::{End, LEASE_MS, Late, World, Wrong};

impl Protocol {
    /// A claim reaches the store.
    pub(crate) fn claim(&self, world: &mut World, draft: &Draft) -> Seen {
        let current = world.record.as_deref();
        if let Some(record) = cas::claim(current, draft, world.clocks.store()) {
            if self.step(Phase::Absent, RecordEvent::Claim) != Some(To::Running) {
                world.go_wrong(Wrong::NotInTheTable);
            }
            world.record = Some(Held(record));
        }
        let mine = cas::is_mine(world.record.as_deref(), draft);
        Seen { mine, ..seen(world) }
    }

    /// A guarded write reaches the store. True if it is done, now or before.
    pub(crate) fn swap(&self, world: &mut World, event: RecordEvent, write: &Write) -> bool {
        let guard = self.guard(event, &write.guard);
        let before = world.record.clone();
        let phase = phase_of_take(&write.next).unwrap_or_else(|| phase_for(event, before.as_deref(), world));
        match cas::swap(before.as_deref(), &guard, &write.next, world.clocks.store()) {
            Effect::Stale => return false,
            Effect::Already(_) => {}
            Effect::Write(record) => {
                if phase == Phase::Expired && matches!(write.next, Next::Running(_)) {
                    world.end_life(End::Taken);
                }
                let is_completed = matches!(record.state, State::Completed { .. });
                world.record = Some(Held(*record));
                self.judge(world, (phase, event), before.as_ref());
                if is_completed {
                    world.completed_at = Some(world.clocks.boot_ms);
                }
            }
            Effect::Delete(_) => {
                if event == RecordEvent::Forget && phase == Phase::Completed {
                    world.end_life(End::Forgotten);
                }
                world.record = None;
                self.judge(world, (phase, event), before.as_ref());
            }
        }
        true
    }

    /// The owner's heartbeat.
    pub(crate) fn renew(&self, world: &mut World) {
        let before = world.record.clone();
        let phase = phase_for(RecordEvent::Renew, before.as_deref(), world);
        if let Some(Held(record)) = &mut world.record
            && self.step(phase, RecordEvent::Renew).is_some()
        {
            let lease_until = world.clocks.store().plus_ms(LEASE_MS);
            record.state = State::Running { lease_until };
            record.count += 1;
            self.judge(world, (phase, RecordEvent::Renew), before.as_ref());
        }
    }

    /// Deletes what has expired at the time that the sweeper trusts.
    pub(crate) fn sweep(&self, world: &mut World) {
        let before = world.record.take();
        let phase = Phase::of(before.as_deref(), world.clocks.trusted());
        if phase == Phase::Expired {
            world.end_life(End::Swept);
        }
        self.judge(world, (phase, RecordEvent::Sweep), before.as_ref());
    }

    /// A late copy reaches the store; nobody hears the answer.
    pub(crate) fn arrive(&self, world: &mut World, late: &Late) {
        match late {
            Late::Claim { request, token, not_after } => {
                self.claim(world, &draft(*request, *token, *not_after));
            }
            Late::Swap(event, write) => {
                self.swap(world, event.0, &write.0);
            }
        }
    }

    /// Whether this change of the record is one that the table has, and spares what is final.
    fn judge(&self, world: &mut World, (phase, event): (Phase, RecordEvent), before: Option<&Held>) {
        let made = world.record.as_ref().map(|record| record.state.kind());
        let is_right = match self.step(phase, event) {
            None => false,
            Some(To::Absent) => made.is_none(),
            Some(To::Running) => made == Some(StateKind::Running),
            Some(To::Unknown) => made == Some(StateKind::Unknown),
            Some(To::Released) => made == Some(StateKind::Released),
            Some(To::Completed) => made == Some(StateKind::Completed),
            Some(To::Back) => made != Some(StateKind::Running) && made != Some(StateKind::Completed),
        };
        if !is_right {
            world.go_wrong(Wrong::NotInTheTable);
        }
        let was_completed = before.is_some_and(|held| held.state.kind() == StateKind::Completed);
        // The life of a record that was old enough has ended.
        if was_completed && world.completed_at.is_some() && event != RecordEvent::Forget {
            world.go_wrong(Wrong::CompletedReplaced);
        }
    }

    /// An owner's guard names the states that the table allows; the engine makes it from the table in the same way.
    fn guard(&self, event: RecordEvent, guard: &Guard) -> Guard {
        let Guard::Owner { token, states } = *guard else {
            return *guard;
        };
        if self.flip.is_none() {
            return Guard::Owner { token, states };
        }
        let kinds = StateKind::ALL.into_iter().filter(|kind| self.step(phase_of(*kind), event).is_some());
        Guard::Owner { token, states: StateSet::of(&kinds.collect::<Vec<_>>()) }
    }
}

/// What the store holds, and the time that the node trusts.
pub(crate) fn seen(world: &World) -> Seen {
    let record: Option<Record> = world.record.clone().map(|held| held.0);
    let now: StoreTime = world.clocks.trusted();
    Seen { record, mine: false, now }
}

/// Owners are guarded by stored states, which know no expiry; everyone else has judged the record as it stands.
fn phase_for(event: RecordEvent, record: Option<&Record>, world: &World) -> Phase {
    use RecordEvent::{MarkUnknown, Release, Renew, Settle};
    match record {
        Some(record) if matches!(event, Settle | Release | MarkUnknown | Renew) => phase_of(record.state.kind()),
        _ => Phase::of(record, world.clocks.trusted()),
    }
}

/// Whoever takes a record over has judged it when it read it, and the guard says that it has not changed since.
fn phase_of_take(next: &Next) -> Option<Phase> {
    let Next::Running(takeover) = next else { return None };
    match takeover.taken_from {
        None => Some(Phase::Expired),
        Some(TakenFrom::Released { .. }) => Some(Phase::Released),
        Some(TakenFrom::Unknown { .. }) => None,
    }
}

fn phase_of(kind: StateKind) -> Phase {
    match kind {
        StateKind::Running => Phase::Running,
        StateKind::Unknown => Phase::Unknown,
        StateKind::Released => Phase::Released,
        StateKind::Completed => Phase::Completed,
    }
}
