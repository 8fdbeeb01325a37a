//! An owner from its claim to its outcome, as `once/perform.rs` and `once/settle.rs` have it, and what callers are told.

use onlyonce::clock::StoreTime;
use onlyonce::engine::Write;
use onlyonce::engine::table::RecordEvent;
use onlyonce::policy::Recovery;
use onlyonce::record::{Record, State};
use onlyonce::store::Seen;

use crate::clocks::{LEASE_MS, TTL_MS};
use crate::hashed::answer_of;
use crate::protocol::{Protocol, Served};
use crate::request::{
    Answer, BY_POLICY, Owner, Request, Told, WITHOUT_BODY, fingerprint, response,
};
use crate::store::seen;
use crate::world::{Copied, End, Event, REQUESTS, World, Wrong};

/// Enough of the lease must be left, else nothing is sent.
pub(crate) fn judge(world: &mut World, index: usize) {
    let Request::Claimed(owner) = world.requests[index] else { return };
    let has_margin = world.clocks.boot_ms - owner.claimed_at <= LEASE_MS - LEASE_MS / 4;
    // From here on nobody asks when it was claimed.
    let owner = Owner { claimed_at: 0, ..owner };
    world.requests[index] = if has_margin { Request::Sending(owner) } else { owner.release() };
}

impl Protocol {
    /// The service gets the request, now or very late.
    pub(crate) fn serve(&self, world: &mut World, index: usize, served: Served) {
        let Request::Sending(owner) = world.requests[index] else { return };
        if served == Served::NotSent {
            world.requests[index] = owner.release();
            return;
        }
        let told = world.execute(owner.life, owner.token, self.dedups());
        let answer = Answer { told, at: world.clocks.trusted(), boot_ms: world.clocks.boot_ms };
        world.requests[index] = match (served, self.recovery) {
            (Served::Answered, _) => {
                owner.answer(Write::settle(owner.token(), response(told)), answer)
            }
            (_, Recovery::Fail) => {
                let write = Write::settle_by_policy(owner.token(), response(BY_POLICY));
                owner.answer(write, Answer { told: BY_POLICY, ..answer })
            }
            _ => owner.give_up(),
        };
    }

    /// The caller is told, and the record is marked unknown, at once or not at all. The work goes on.
    pub(crate) fn overdue(&self, world: &mut World, index: usize) {
        world.budget.deadlines -= 1;
        let Request::Sending(owner) = world.requests[index] else { return };
        let write = Write::mark_unknown(owner.token());
        self.swap(world, Event(RecordEvent::MarkUnknown, None), &write);
    }
}

/// The answer is given up for its memory.
pub(crate) fn forgo(world: &mut World, index: usize) {
    let Request::Settling { owner, .. } = world.requests[index] else { return };
    world.requests[index] = owner.give_up();
}

/// The store refuses the answer for its content: it is settled without its body.
pub(crate) fn refuse(world: &mut World, index: usize) {
    let Request::Settling { owner, answer: Some(answer), .. } = world.requests[index] else {
        return;
    };
    world.budget.faults -= 1;
    let write = Write::settle(owner.token(), response(WITHOUT_BODY));
    world.requests[index] = owner.answer(write, answer);
}

/// The owner's last write was answered.
pub(crate) fn settled(
    world: &mut World,
    index: usize,
    owner: Owner,
    answer: Option<Answer>,
    is_done: bool,
) -> Request {
    let own = world.record.as_ref().filter(|record| record.token == owner.token());
    let kept = own.and_then(|record| record.response().map(|response| answer_of(response)));
    match (is_done, kept, answer) {
        // Also if it was refused because an earlier copy of its answer is there: then it tells its own.
        (true, _, Some(answer)) | (false, Some(_), Some(answer)) => {
            let is_other = fingerprint(index) == fingerprint(REQUESTS - 1);
            let expires_at = answer.at.plus_ms(TTL_MS);
            if let Some(kept) = kept {
                keep(world, kept, is_other, (expires_at, answer.boot_ms));
            }
            world.tell(owner.life, answer.told);
            Request::Told(Told::Fresh(answer.told))
        }
        (true, _, None) => Request::Told(Told::NotDone),
        // It gave its answer up, and an earlier copy of it is there.
        (false, Some(kept), None) => {
            tell(world, owner.life, kept);
            Request::Told(Told::Fresh(kept))
        }
        // A fenced owner answers from the record, never with its own answer.
        (false, None, _) => match by_record(world, index) {
            Some(Request::Told(Told::Replay(_))) | None => Request::Told(Told::Fenced),
            Some(other) => other,
        },
    }
}

/// A waiter looks at the record.
pub(crate) fn look(world: &mut World, index: usize) {
    if let Some(told) = by_record(world, index) {
        world.requests[index] = told;
    }
}

/// The answer that the record has for this request; `None` if the key is free.
pub(crate) fn by_record(world: &mut World, index: usize) -> Option<Request> {
    let Seen { record, now, .. } = seen(world);
    let record: Record = record.filter(|record| !record.is_expired(now))?;
    match &record.state {
        State::Released { .. } => None,
        _ if !record.fingerprint.matches(&fingerprint(index)) => Some(Request::Told(Told::Reused)),
        State::Completed { response, .. } => Some(replay(world, index, answer_of(response))),
        State::Unknown { .. } => Some(Request::Told(Told::Unknown)),
        State::Running { .. } => Some(Request::Told(Told::InProgress)),
    }
}

/// A retry gets the answer of the record, and the node keeps a copy of it.
pub(crate) fn replay(world: &mut World, index: usize, answer: u8) -> Request {
    let record = world.record.clone();
    if let Some(expires_at) = record.as_ref().and_then(|record| record.expires_at()) {
        let is_other = record.as_ref().is_some_and(|r| r.fingerprint == fingerprint(REQUESTS - 1));
        keep(world, answer, is_other, (expires_at, world.clocks.boot_ms));
    }
    if !record.is_some_and(|record| record.fingerprint.matches(&fingerprint(index))) {
        world.go_wrong(Wrong::AnswerToAnotherRequest);
    }
    tell(world, world.life, answer);
    Request::Told(Told::Replay(answer))
}

/// The answer of a node that has a copy of the completed record.
pub(crate) fn by_copy(world: &mut World, index: usize, copy: Copied) -> Request {
    if matches!(world.lives[copy.life].end, Some(End::Swept | End::Taken)) {
        world.go_wrong(Wrong::CopyOutlivesRecord);
    }
    if copy.is_other != (fingerprint(index) == fingerprint(REQUESTS - 1)) {
        return Request::Told(Told::Reused);
    }
    tell(world, copy.life, copy.answer);
    Request::Told(Told::Copy(copy.answer))
}

fn keep(world: &mut World, answer: u8, is_other: bool, (expires_at, read_at): (StoreTime, i64)) {
    world.copy = Some(Copied { answer, is_other, expires_at, read_at, life: world.life });
}

/// An answer without its body is a refusal, which agrees with every answer.
fn tell(world: &mut World, life: usize, answer: u8) {
    if answer != WITHOUT_BODY {
        world.tell(life, answer);
    }
}
