//! The model's store: `cas` under the guards that the table allows.

use onlyonce::engine::Write;
use onlyonce::engine::table::{Phase, RecordEvent, To};
use onlyonce::record::{Record, State, StateKind, StateSet};
use onlyonce::store::cas::{self, Effect};
use onlyonce::store::{Draft, Guard, Seen};

use crate::clocks::LEASE_MS;
use crate::hashed::Held;
use crate::promises::{of_change, of_late_claim};
use crate::protocol::Protocol;
use crate::request::{Request, draft, lease};
use crate::world::{Event, Late, World, Wrong};

impl Protocol {
    /// A claim reaches the store.
    pub(crate) fn claim(&self, world: &mut World, draft: &Draft) -> Seen {
        let current = world.record.as_deref();
        if let Some(record) = cas::claim(current, draft, world.clocks.store()) {
            if self.step(Phase::Absent, RecordEvent::Claim) == Some(To::Running) {
                world.record = Some(Held::new(record));
                world.beat_at = world.clocks.boot_ms;
                world.lives[world.life].begun_at = world.clocks.boot_ms;
            } else {
                world.go_wrong(Wrong::FreeKeyRefused);
            }
        }
        let mine = cas::is_mine(world.record.as_deref(), draft);
        Seen { mine, ..seen(world) }
    }

    /// A guarded write reaches the store. True if it is done, now or before.
    pub(crate) fn swap(&self, world: &mut World, event: Event, write: &Write) -> bool {
        let guard = self.guard(event.0, &write.guard);
        let before = world.record.clone();
        let after = match cas::swap(before.as_deref(), &guard, &write.next, world.clocks.store()) {
            Effect::Stale => return false,
            Effect::Already(_) => return true,
            Effect::Write(record) => Some(Held::new(*record)),
            Effect::Delete(_) => None,
        };
        world.record = after;
        self.changed(world, event, before.as_ref());
        true
    }

    /// The owner's heartbeat.
    pub(crate) fn renew(&self, world: &mut World, index: usize) {
        let before = world.record.clone();
        let (Some(held), Some(owner)) = (&before, world.requests[index].owner()) else { return };
        let (token, now) = (owner.token(), world.clocks.store());
        let lease_until = now.plus_ms(LEASE_MS);
        if self.step(phase_of(held.state.kind()), RecordEvent::Renew).is_some() {
            let as_if_running =
                Record { state: State::Running { lease_until }, ..(**held).clone() };
            world.record = cas::renew(Some(&as_if_running), token, lease(), now).map(Held::new);
            self.changed(world, Event(RecordEvent::Renew, None), before.as_ref());
            if let Request::Claimed(owner) = &mut world.requests[index] {
                owner.claimed_at = world.clocks.boot_ms;
            }
        }
        let state = world.record.as_ref().map(|record| &record.state);
        if held.state.kind() == StateKind::Running && state != Some(&State::Running { lease_until })
        {
            world.go_wrong(Wrong::LeaseNotKept);
        }
    }

    /// Deletes what has expired at the time that the sweeper trusts.
    pub(crate) fn sweep(&self, world: &mut World) {
        let before = world.record.take();
        let phase = Phase::of(before.as_deref(), world.clocks.trusted());
        self.changed(world, Event(RecordEvent::Sweep, Some(phase)), before.as_ref());
    }

    /// A late copy reaches the store; nobody hears the answer.
    pub(crate) fn arrive(&self, world: &mut World, late: &Late) {
        let before = world.record.clone();
        match late {
            Late::Claim { request, token, not_after } => {
                self.claim(world, &draft(*request, *token, *not_after));
            }
            Late::Swap(event, write) => {
                self.swap(world, *event, &write.0);
            }
        }
        if world.record != before {
            of_late_claim(self, world);
        }
    }

    fn changed(&self, world: &mut World, event: Event, before: Option<&Held>) {
        // An owner's guard names stored states, which know no expiry; everyone else has judged the record before.
        let stored = before.map_or(Phase::Absent, |held| phase_of(held.state.kind()));
        let made = world.record.as_ref().map(|record| record.state.kind());
        let to = self.step(event.1.unwrap_or(stored), event.0);
        // A flipped table is judged by what comes of it alone.
        if self.flip.is_none() && !is_made(to, made) {
            world.go_wrong(Wrong::NotInTheTable);
        }
        of_change(world, before.map(|held| &**held), event.0);
    }

    /// An owner's guard names the states that the table allows; the engine makes it from the table in the same way.
    fn guard(&self, event: RecordEvent, guard: &Guard) -> Guard {
        let Guard::Owner { token, states } = *guard else {
            return *guard;
        };
        if self.flip.is_none() {
            return Guard::Owner { token, states };
        }
        let kinds = StateKind::ALL.into_iter();
        let kinds = kinds.filter(|kind| self.step(phase_of(*kind), event).is_some());
        Guard::Owner { token, states: StateSet::of(&kinds.collect::<Vec<_>>()) }
    }
}

/// Whether the record has become what the table says.
fn is_made(to: Option<To>, made: Option<StateKind>) -> bool {
    match to {
        None => false,
        Some(To::Absent) => made.is_none(),
        Some(To::Running) => made == Some(StateKind::Running),
        Some(To::Unknown) => made == Some(StateKind::Unknown),
        Some(To::Released) => made == Some(StateKind::Released),
        Some(To::Completed) => made == Some(StateKind::Completed),
        Some(To::Back) => made != Some(StateKind::Running) && made != Some(StateKind::Completed),
    }
}

/// What the store holds, and the time that the node trusts.
pub(crate) fn seen(world: &World) -> Seen {
    let record: Option<Record> = world.record.as_deref().cloned();
    Seen { record, mine: false, now: world.clocks.trusted() }
}

fn phase_of(kind: StateKind) -> Phase {
    match kind {
        StateKind::Running => Phase::Running,
        StateKind::Unknown => Phase::Unknown,
        StateKind::Released => Phase::Released,
        StateKind::Completed => Phase::Completed,
    }
}
