//! A member of a batch: a call on its way, step by step.
//!
//! A claim and a completion by its owner are one statement each: their guards are in the statement. A member that comes
//! back in no row is read and judged by [`cas`], which knows whether it was done before; the record that [`cas`] makes of
//! it then replaces exactly the one that was read. All other writes begin there.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::answer::Answer;
use super::call::{Call, Reply, SwapCall};
use super::columns::{Row, open_states, uuid};
use super::sql_error::SqlError;
use super::statement::Statement;
use crate::clock::StoreTime;
use crate::record::{Record, Response, Revision, SettledBy, Token, codec};
use crate::scope::OperationId;
use crate::store::audit::Note;
use crate::store::cas::{self, Effect};
use crate::store::{Fault, Guard, Next, Seen, StoreError, Swap};

pub(super) struct Member {
    pub(super) call: Call,
    step: Step,
    /// How often another session was faster.
    tries: u8,
}

/// What is to be done for a member next.
enum Step {
    /// Read the record, and judge the call by it.
    Load,
    /// Insert this record, whose times the server decides.
    Claim(Box<Record>),
    /// Complete the record of this token, if it is in one of these states.
    Complete { token: Token, states: i32, settled_by: SettledBy, response: Arc<Response> },
    /// Replace the record of this revision.
    Put(Box<Record>, Revision),
    /// Delete the record of this revision.
    Delete(Revision),
}

/// What a commit has done for a member.
pub(super) enum Progress {
    /// It has a step to go.
    Next(Member),
    /// Its caller was told that the record was written.
    Wrote,
    /// Its caller was told something else.
    Answered,
}

impl Member {
    pub(super) fn new(call: Call) -> Self {
        let step = match &call {
            Call::Load(..) => Step::Load,
            Call::Claim(claim, _) => {
                Step::Claim(Box::new(cas::first_attempt(&claim.draft, NO_TIME)))
            }
            Call::Swap(swap, _) => first_step(swap),
        };
        Self { call, step, tries: 0 }
    }

    pub(super) fn id(&self) -> OperationId {
        self.call.id()
    }

    pub(super) fn is_load(&self) -> bool {
        matches!(self.call, Call::Load(..))
    }

    pub(super) fn statement(&self) -> Statement {
        match self.step {
            Step::Load => Statement::Load,
            Step::Claim(_) => Statement::Claim,
            Step::Complete { .. } => Statement::Complete,
            Step::Put(..) => Statement::Put,
            Step::Delete(_) => Statement::Delete,
        }
    }

    /// What the audit trail is told if the step writes the record.
    pub(super) fn note(&self) -> Option<&Note> {
        if matches!(self.step, Step::Load) { None } else { self.call.note() }
    }

    /// What the statement of its step takes.
    pub(super) fn row(&self) -> Row<'_> {
        let (id, not_after) = (self.id(), self.call.not_after());
        match &self.step {
            Step::Load => Row::of_id(id),
            Step::Claim(record) => Row { not_after, ..Row::of_record(id, record) },
            Step::Complete { token, states, settled_by, response } => {
                let row = Row { old_token: uuid(*token), old_states: *states, ..Row::of_id(id) };
                row.with_response(codec::settled_by_tag(*settled_by).into(), response)
            }
            Step::Put(record, revision) => {
                Row { not_after, ..Row::of_record(id, record) }.unchanged_since(*revision)
            }
            Step::Delete(revision) => Row::of_id(id).unchanged_since(*revision),
        }
    }

    /// A read has changed nothing, whatever the error says.
    pub(super) fn fail(self, error: &SqlError) {
        let fault = match self.call {
            Call::Load(..) => error.fault_of_read(),
            _ => error.fault(),
        };
        self.call.fail(fault);
    }

    /// Answers the caller by what the statement of its step answered, or goes on to the next step.
    pub(super) fn go_on(self, answer: &Answer) -> Progress {
        let (id, now) = (self.id(), answer.now);
        let record = match answer.record(id) {
            Ok(record) => record,
            Err(error) => return failed(self.call, Fault::NotDone(error)),
        };
        let (step, tries, written) = (self.step, self.tries, answer.written(id));
        match self.call {
            Call::Load(_, reply) => told(reply, Seen { record, mine: false, now }),
            Call::Claim(claim, reply) if written.is_some() => {
                told(reply, Seen { record: cas::claim(None, &claim.draft, now), mine: true, now });
                Progress::Wrote
            }
            Call::Claim(claim, reply) if record.is_none() && now <= claim.draft.not_after => {
                next(Call::Claim(claim, reply), step, tries)
            }
            Call::Claim(claim, reply) => {
                let mine = cas::is_mine(record.as_ref(), &claim.draft);
                told(reply, Seen { record, mine, now })
            }
            Call::Swap(swap, reply) => match swapped(&step, &swap, written, record, now) {
                ControlFlow::Break(Swap::Done(revision)) => {
                    told(reply, Swap::Done(revision));
                    Progress::Wrote
                }
                ControlFlow::Break(stale) => told(reply, stale),
                ControlFlow::Continue(step) => next(Call::Swap(swap, reply), step, tries),
            },
        }
    }
}

/// The owner's completion is guarded in its statement, unless the owner may write over a completed record: that may be
/// its own.
fn first_step(swap: &SwapCall) -> Step {
    match (&swap.guard, &swap.to) {
        (Guard::Owner { token, states }, Next::Completed { settled_by, response, token: None })
            if open_states(*states) != 0 =>
        {
            Step::Complete {
                token: *token,
                states: open_states(*states),
                settled_by: *settled_by,
                response: response.clone(),
            }
        }
        _ => Step::Load,
    }
}

/// What became of a swap, or its next step: if its statement wrote nothing, the record is read and judged.
fn swapped(
    step: &Step,
    swap: &SwapCall,
    written: Option<Revision>,
    current: Option<Record>,
    now: StoreTime,
) -> ControlFlow<Swap, Step> {
    match (step, written) {
        (_, Some(revision)) => return ControlFlow::Break(Swap::Done(revision)),
        (Step::Load, None) => {}
        (_, None) => return ControlFlow::Continue(Step::Load),
    }
    let effect = cas::swap(current.as_ref(), &swap.guard, &swap.to, now);
    match (effect, current.as_ref().map(Record::revision)) {
        (Effect::Already(revision), _) => ControlFlow::Break(Swap::Done(revision)),
        (Effect::Write(record), Some(read)) => ControlFlow::Continue(Step::Put(record, read)),
        (Effect::Delete(_), Some(read)) => ControlFlow::Continue(Step::Delete(read)),
        _ => {
            let seen = Seen { record: current, mine: false, now };
            ControlFlow::Break(Swap::Stale(Box::new(seen)))
        }
    }
}

/// The next step, unless others were faster too often.
fn next(call: Call, step: Step, tries: u8) -> Progress {
    if tries >= TRIES_MAX {
        return failed(call, Fault::NotDone(StoreError::Busy));
    }
    Progress::Next(Member { call, step, tries: tries + 1 })
}

fn told<T>(reply: Reply<T>, answer: T) -> Progress {
    drop(reply.send(Ok(answer)));
    Progress::Answered
}

fn failed(call: Call, fault: Fault) -> Progress {
    call.fail(fault);
    Progress::Answered
}

/// The server takes the times of a claim.
const NO_TIME: StoreTime = StoreTime::from_ms(0);
/// Steps that a member may take before its caller is told that the store is busy.
const TRIES_MAX: u8 = 16;
