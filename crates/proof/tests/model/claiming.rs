//! A request and its claim, as `once/claim.rs` and `once/disown.rs` have it.

use onlyonce::engine::table::{self, Phase, RecordEvent};
use onlyonce::engine::{Asked as Question, Decision, Write, decide};
use onlyonce::record::{SettledBy, State, TakenFrom};
use onlyonce::store::{Draft, Next, Seen};

use crate::hashed::{Asked, answer_of};
use crate::promises;
use crate::protocol::Protocol;
use crate::request::{
    BY_POLICY, BY_RECONCILE, From, Owner, Request, Told, as_stranger, response, token,
};
use crate::settling::{by_record, replay};
use crate::world::{Event, World, Wrong};

impl Protocol {
    pub(crate) fn send(&self, world: &mut World, index: usize) {
        world.budget.sent -= 1;
        let number = self.budget.sent - world.budget.sent;
        let not_after = world.clocks.store().plus_ms(NOT_AFTER_MS);
        let sent_at = world.clocks.boot_ms;
        world.requests[index] =
            Request::Claiming { token: number, sent_at, not_after, is_unsure: false };
    }

    /// What the engine makes of the record that a claim has shown.
    pub(crate) fn claimed(
        &self,
        world: &mut World,
        index: usize,
        sent: Sent,
        seen: &Seen,
    ) -> Request {
        let decision = decide(seen, Question { draft: &sent.draft, recovery: self.recovery });
        let is_others = seen.record.as_ref().is_some_and(|record| record.token != sent.draft.token);
        if is_others && let Some(taking) = self.take(world, &sent, seen, &decision) {
            return taking;
        }
        match decision {
            Decision::Execute { attempt, taken_from } => Request::Claimed(Owner {
                token: sent.token,
                attempt,
                from: From::of(taken_from),
                claimed_at: sent.sent_at,
                life: world.life,
            }),
            Decision::Replay(response) => replay(world, index, answer_of(&response)),
            Decision::Reused | Decision::Respelled => Request::Told(Told::Reused),
            Decision::Unknown { .. } => Request::Told(Told::Unknown),
            Decision::Fail(_) => self.settle_and_look(world, index, SettledBy::Policy, BY_POLICY),
            Decision::Reconcile { .. } if world.lives[world.life].effects > 0 => {
                self.settle_and_look(world, index, SettledBy::Reconcile, BY_RECONCILE)
            }
            Decision::Reconcile { .. } => Request::Told(Told::Unknown),
            // Its own claim, and it has lapsed: nothing was sent, so it is released.
            Decision::GiveUp if seen.record.is_some() => Request::Disowned {
                token: sent.token,
                from: From::Nothing,
                not_after: sent.draft.not_after,
            },
            Decision::InProgress | Decision::GiveUp | Decision::Release(_) | Decision::Take(_) => {
                Request::Told(Told::InProgress)
            }
        }
    }

    /// The request takes over the record of another if the engine decides so, and the table lets it; or if a flipped cell
    /// lets it.
    fn take(
        &self,
        world: &mut World,
        sent: &Sent,
        seen: &Seen,
        decision: &Decision,
    ) -> Option<Request> {
        let record = seen.record.as_ref()?;
        let phase = Phase::of(Some(record), seen.now);
        let (event, write) = match decision {
            _ if self.is_wrongly_allowed(phase, RecordEvent::Claim) => {
                let write = Write::take(record, phase == Phase::Expired, sent.draft.clone());
                (RecordEvent::Claim, write)
            }
            _ if self.is_wrongly_allowed(phase, RecordEvent::Redrive) && self.dedups() => {
                (RecordEvent::Redrive, Write::redrive(record, seen.now, sent.draft.clone()))
            }
            Decision::Take(write) => (event_of(write), (**write).clone()),
            _ if matches!(phase, Phase::Released | Phase::Expired) => {
                world.go_wrong(Wrong::FreeKeyRefused);
                return None;
            }
            _ => return None,
        };
        if self.step(phase, event).is_none() {
            world.go_wrong(refused(phase, event));
            return None;
        }
        if event == RecordEvent::Redrive {
            promises::of_redrive(self, world);
        }
        Some(Request::Taking {
            token: sent.token,
            sent_at: sent.sent_at,
            write: Asked::new(write),
            event: Event(event, Some(phase)),
            is_unsure: false,
        })
    }

    /// Somebody who is not the owner settles an unknown outcome; the request is answered by it.
    fn settle_and_look(
        &self,
        world: &mut World,
        index: usize,
        by: SettledBy,
        answer: u8,
    ) -> Request {
        let record =
            world.record.as_deref().filter(|record| matches!(record.state, State::Unknown { .. }));
        if let Some(write) =
            record.and_then(|record| Write::settle_for(record, by, response(answer)))
        {
            self.swap(
                world,
                Event(RecordEvent::SettleFor, Some(Phase::Unknown)),
                &as_stranger(write),
            );
        }
        by_record(world, index).unwrap_or(Request::Told(Told::InProgress))
    }
}

/// A claim that was sent.
pub(crate) struct Sent {
    pub(crate) token: u8,
    pub(crate) sent_at: i64,
    pub(crate) draft: Draft,
}

/// What a caller is refused if the table forbids what the engine has decided.
fn refused(phase: Phase, event: RecordEvent) -> Wrong {
    match (table::step(phase, event), event) {
        (None, _) => Wrong::NotInTheTable,
        (_, RecordEvent::Redrive) => Wrong::NotRedriven,
        _ => Wrong::FreeKeyRefused,
    }
}

/// The caller is told that the store is down; the claim is released until no copy of it can arrive any more.
pub(crate) fn give_up(world: &mut World, index: usize) {
    let disowned = match &world.requests[index] {
        Request::Claiming { token, not_after, .. } => {
            Request::Disowned { token: *token, from: From::Nothing, not_after: *not_after }
        }
        Request::Taking { token, write, .. } => disowned(*token, &write.0),
        _ => return,
    };
    world.requests[index] = disowned;
}

pub(crate) fn taken(
    world: &World,
    (number, sent_at): (u8, i64),
    write: &Write,
    is_done: bool,
) -> Request {
    match &write.next {
        Next::Running(takeover) if is_done => Request::Claimed(Owner {
            token: number,
            attempt: takeover.attempt,
            from: From::of(takeover.taken_from),
            claimed_at: sent_at,
            life: world.life,
        }),
        // An earlier copy took the record, and its lease lapsed before the answer came: nothing was sent.
        _ if world.record.as_ref().is_some_and(|record| record.token == token(number)) => {
            disowned(number, write)
        }
        _ => Request::Told(Told::InProgress),
    }
}

fn disowned(token: u8, write: &Write) -> Request {
    match &write.next {
        Next::Running(takeover) => Request::Disowned {
            token,
            from: From::of(takeover.taken_from),
            not_after: takeover.draft.not_after,
        },
        _ => Request::Told(Told::InProgress),
    }
}

fn event_of(write: &Write) -> RecordEvent {
    match &write.next {
        Next::Running(takeover)
            if matches!(takeover.taken_from, Some(TakenFrom::Unknown { .. })) =>
        {
            RecordEvent::Redrive
        }
        _ => RecordEvent::Claim,
    }
}

const NOT_AFTER_MS: i64 = 10_000;
