//! Which steps each party may take now.

use onlyonce::engine::table::{Phase, RecordEvent};
use onlyonce::policy::Recovery;
use onlyonce::record::State;

use crate::clocks::{COPY_MS, LEASE_MS};
use crate::hashed::answer_of_write;
use crate::protocol::{Action, Fate, Pace, Protocol, Served};
use crate::request::{Owner, Request, Told, WITHOUT_BODY};
use crate::world::World;

impl Protocol {
    pub(crate) fn of_request(&self, world: &World, index: usize, actions: &mut Vec<Action>) {
        let budget = &world.budget;
        let request = &world.requests[index];
        match request {
            Request::NotSent | Request::Told(_) | Request::Dead => {
                return of_client(world, index, actions);
            }
            Request::Claiming { is_unsure, .. } | Request::Taking { is_unsure, .. } => {
                of_call(world, index, actions);
                if *is_unsure {
                    actions.push(Action::GiveUp(index));
                }
            }
            Request::Claimed(_) => actions.push(Action::Judge(index)),
            Request::Sending(_) => self.of_work(world, index, actions),
            Request::Settling { is_unsure, event, write, .. } => {
                of_call(world, index, actions);
                let is_answer = event.0 == RecordEvent::Settle;
                if *is_unsure && is_answer {
                    actions.push(Action::Forgo(index));
                }
                if is_answer && budget.faults > 0 && answer_of_write(&write.0) != Some(WITHOUT_BODY)
                {
                    actions.push(Action::Refuse(index));
                }
            }
            Request::Disowned { .. } => actions.push(Action::Call(index, Fate::Answered)),
        }
        if request.owner().is_some_and(|owner| self.renews(world, owner)) {
            actions.push(Action::Renew(index));
        }
        if budget.crashes > 0 {
            actions.push(Action::Crash(index));
        }
    }

    fn of_work(&self, world: &World, index: usize, actions: &mut Vec<Action>) {
        let all = [Served::Answered, Served::Silent, Served::NotSent];
        actions.extend(all.map(|served| Action::Serve(index, served)));
        if world.budget.deadlines > 0 && self.recovery == Recovery::Hold {
            actions.push(Action::Overdue(index));
        }
    }

    pub(crate) fn of_background(&self, world: &World, actions: &mut Vec<Action>) {
        if self.allows(world, RecordEvent::Reap) {
            actions.push(Action::Reap(Pace::AtOnce));
            if world.budget.faults > 0 {
                actions.push(Action::Reap(Pace::Later));
            }
        }
        if self.allows(world, RecordEvent::Sweep) {
            actions.push(Action::Sweep);
        }
    }

    pub(crate) fn of_operators(&self, world: &World, actions: &mut Vec<Action>) {
        if world.budget.operators == 0 {
            return;
        }
        let all = [RecordEvent::SettleFor, RecordEvent::ReleaseFor, RecordEvent::Forget];
        for event in all.into_iter().filter(|event| self.allows(world, *event)) {
            actions.push(Action::Operate(event, Pace::AtOnce));
            if world.budget.faults > 0 {
                actions.push(Action::Operate(event, Pace::Later));
            }
        }
    }

    /// Whether the record is this owner's, and time has passed since its last renewal.
    fn renews(&self, world: &World, owner: &Owner) -> bool {
        let lease_until = world.clocks.store().plus_ms(LEASE_MS);
        world.record.as_ref().is_some_and(|record| match record.state {
            _ if record.token != owner.token() => false,
            State::Running { lease_until: until } => until != lease_until,
            _ => self.is_wrongly_allowed(
                Phase::of(Some(record), world.clocks.trusted()),
                RecordEvent::Renew,
            ),
        })
    }
}

fn of_client(world: &World, index: usize, actions: &mut Vec<Action>) {
    if world.requests[index] == Request::Told(Told::InProgress) && has_ended(world) {
        actions.push(Action::Look(index));
    }
    // The first two send the same, so that one of them may always be the first.
    let is_turn = index != 1 || world.requests[0] != Request::NotSent;
    if world.budget.sent == 0 || !is_turn {
        return;
    }
    actions.push(Action::Send(index));
    let is_fresh = world.copy.is_some_and(|copy| {
        world.clocks.boot_ms - copy.read_at < COPY_MS && world.clocks.trusted() < copy.expires_at
    });
    if is_fresh {
        actions.push(Action::Hit(index));
    }
}

/// Whether a waiter learns anything from the record.
fn has_ended(world: &World) -> bool {
    world.record.as_ref().is_some_and(|record| {
        matches!(record.state, State::Completed { .. } | State::Unknown { .. })
    })
}

fn of_call(world: &World, index: usize, actions: &mut Vec<Action>) {
    actions.push(Action::Call(index, Fate::Answered));
    if world.budget.faults > 0 {
        actions.push(Action::Call(index, Fate::AnswerLost));
        actions.push(Action::Call(index, Fate::Delayed));
    }
}
