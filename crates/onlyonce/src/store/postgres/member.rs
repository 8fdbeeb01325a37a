//! A member of a batch: a call on its way, step by step.
//!
//! A claim and a completion by its owner are one statement each: their guards are in the statement. A completion that
//! comes back in no row is read and judged by [`cas`], which knows whether it was done before; the record that [`cas`]
//! makes of it then replaces exactly the one that was read. All other writes begin there.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::batch::Answer;
use super::columns::{Row, open_states, uuid};
use super::notify::Notifier;
use super::sql_error::SqlError;
use super::statement::Statement;
use super::value::Moment;
use crate::clock::StoreTime;
use crate::record::{Record, Response, Revision, SettledBy, Token};
use crate::scope::OperationId;
use crate::store::audit::Note;
use crate::store::{Draft, Fault, Guard, Next, Seen, StoreError, Swap, cas};

pub(super) struct Member {
    pub(super) id: OperationId,
    call: Call,
    step: Step,
    /// How often another session was faster.
    tries: u8,
    note: Option<Arc<Note>>,
}

/// What was asked, and who is told.
enum Call {
    Load(Reply<Seen>),
    Claim(Box<Draft>, Reply<Seen>),
    Swap(Guard, Next, Reply<Swap>),
}

/// The caller may have dropped its call, and then gets no answer; by the contract of a store it may have happened.
type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// What is to be done for a member next.
enum Step {
    /// Read the record, and judge the call by it.
    Load,
    /// Insert this record, whose times the server decides.
    Claim(Box<Record>),
    /// Complete the record of this token, if it is in one of these states.
    Complete { token: Token, states: i32, settled_by: SettledBy, response: Arc<Response> },
    /// Put this in the place of the record of this revision, or delete it.
    Put(Revision, Option<Box<Record>>),
}

/// Queues a call and waits for its answer. If its worker died with it, the answer is what `lost` makes of that.
pub(super) async fn ask<T>(
    queue: &mpsc::Sender<Member>,
    lost: fn(StoreError) -> Fault,
    call: impl FnOnce(Reply<T>) -> Member,
) -> Result<T, Fault> {
    let (reply, answer) = oneshot::channel();
    queue.try_send(call(reply)).map_err(|refused| match refused {
        mpsc::error::TrySendError::Full(_) => Fault::NotDone(StoreError::Busy),
        mpsc::error::TrySendError::Closed(_) => Fault::NotDone(StoreError::Closed),
    })?;
    answer.await.unwrap_or_else(|_| Err(lost(StoreError::Closed)))
}

impl Member {
    pub(super) fn load(id: OperationId, reply: Reply<Seen>) -> Self {
        Self { id, call: Call::Load(reply), step: Step::Load, tries: 0, note: None }
    }

    /// `note` is what the audit trail is told if the record is written.
    pub(super) fn claim(draft: Draft, note: Option<Arc<Note>>, reply: Reply<Seen>) -> Self {
        let step = Step::Claim(Box::new(cas::first_attempt(&draft, NO_TIME)));
        Self { id: draft.id, call: Call::Claim(Box::new(draft), reply), step, tries: 0, note }
    }

    /// The owner's completion is guarded in its statement, unless the owner may write over a completed record: that may
    /// be its own.
    pub(super) fn swap(
        id: OperationId,
        guard: Guard,
        to: Next,
        note: Option<Arc<Note>>,
        reply: Reply<Swap>,
    ) -> Self {
        let step = match (&guard, &to) {
            (
                &Guard::Owner { token, states },
                &Next::Completed { settled_by, ref response, token: None },
            ) if open_states(states) != 0 => {
                let (states, response) = (open_states(states), response.clone());
                Step::Complete { token, states, settled_by, response }
            }
            _ => Step::Load,
        };
        Self { id, call: Call::Swap(guard, to, reply), step, tries: 0, note }
    }

    pub(super) fn is_load(&self) -> bool {
        matches!(self.call, Call::Load(_))
    }

    /// What the call adds to a batch.
    pub(super) fn body_bytes(&self) -> usize {
        match &self.call {
            Call::Swap(_, to, _) => to.body_bytes(),
            Call::Load(_) | Call::Claim(..) => 0,
        }
    }

    pub(super) fn statement(&self) -> Statement {
        match self.step {
            Step::Load => Statement::Load,
            Step::Claim(_) => Statement::Claim,
            Step::Complete { .. } => Statement::Complete,
            Step::Put(_, Some(_)) => Statement::Put,
            Step::Put(_, None) => Statement::Delete,
        }
    }

    /// What the audit trail is told if the step writes the record.
    pub(super) fn note(&self) -> Option<&Note> {
        self.note.as_deref().filter(|_| !matches!(self.step, Step::Load))
    }

    /// What the statement of its step takes.
    pub(super) fn row(&self) -> Row<'_> {
        let (id, not_after) = (self.id, Moment(self.not_after()));
        match &self.step {
            Step::Load => Row::of_id(id),
            Step::Claim(record) => Row { not_after, ..Row::of_record(id, record) },
            Step::Complete { token, states, settled_by, response } => {
                let row = Row { old_token: uuid(*token), old_states: *states, ..Row::of_id(id) };
                row.with_response(*settled_by, response)
            }
            Step::Put(Revision { token, count }, to) => {
                let (old_token, old_count) = (uuid(*token), count.cast_signed());
                let row = match to {
                    Some(to) => Row::of_record(id, to),
                    None => Row::of_id(id),
                };
                Row { old_token, old_count, not_after, ..row }
            }
        }
    }

    /// The server must not write the record after this moment.
    fn not_after(&self) -> StoreTime {
        match &self.call {
            Call::Load(_) => StoreTime::MAX,
            Call::Claim(draft, _) => draft.not_after,
            Call::Swap(_, to, _) => to.not_after(),
        }
    }

    /// Answers the caller by the answer of its step's statement, and wakes the waiters of the record; or returns the member
    /// with its next step.
    pub(super) fn go_on(self, answer: &Answer, notifier: &Notifier) -> Option<Self> {
        let id = self.id;
        match self.call {
            Call::Load(reply) => tell(reply, answer.seen(id)),
            Call::Claim(draft, reply) => match answer.seen(id) {
                // It has met another claim that was not committed when it looked.
                Ok(Seen { record: None, now, .. }) if now <= draft.not_after => {
                    Self { call: Call::Claim(draft, reply), ..self }.unless_too_often()
                }
                seen => {
                    if answer.written(id).is_some() {
                        notifier.wakers.wake(id);
                    }
                    let mine = |seen: &Seen| cas::is_mine(seen.record.as_ref(), &draft);
                    tell(reply, seen.map(|seen| Seen { mine: mine(&seen), ..seen }))
                }
            },
            Call::Swap(guard, to, reply) => match swapped(&self.step, id, &guard, &to, answer) {
                Ok(Continue(step)) => {
                    Self { call: Call::Swap(guard, to, reply), step, ..self }.unless_too_often()
                }
                Ok(Break(swap)) => {
                    if let Swap::Done(_) = swap {
                        notifier.wrote(id);
                    }
                    tell(reply, Ok(swap))
                }
                Err(fault) => tell(reply, Err(fault)),
            },
        }
    }

    /// Its next step, unless others were faster too often: then the store is busy.
    fn unless_too_often(self) -> Option<Self> {
        if self.tries < TRIES_MAX {
            return Some(Self { tries: self.tries + 1, ..self });
        }
        self.fail(&SqlError::Locked);
        None
    }

    pub(super) fn fail(self, error: &SqlError) {
        match self.call {
            // A read has changed nothing, whatever the error says.
            Call::Load(reply) => drop(reply.send(Err(error.fault_of_read()))),
            Call::Claim(_, reply) => drop(reply.send(Err(error.fault()))),
            Call::Swap(_, _, reply) => drop(reply.send(Err(error.fault()))),
        }
    }
}

/// What became of a swap, or its next step: if its statement wrote nothing, the record is read and judged.
fn swapped(
    step: &Step,
    id: OperationId,
    guard: &Guard,
    to: &Next,
    answer: &Answer,
) -> Result<ControlFlow<Swap, Step>, Fault> {
    Ok(match (step, answer.written(id)) {
        (_, Some(revision)) => Break(Swap::Done(revision)),
        (Step::Load, None) => match cas::judge(answer.seen(id)?, guard, to) {
            Break(swap) => Break(swap),
            Continue((read, to)) => Continue(Step::Put(read, to)),
        },
        (_, None) => Continue(Step::Load),
    })
}

fn tell<T>(reply: Reply<T>, answer: Result<T, Fault>) -> Option<Member> {
    drop(reply.send(answer));
    None
}

/// The largest body that is kept: one commit must not hold up the others for long.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// The server takes the times of a claim.
const NO_TIME: StoreTime = StoreTime::from_ms(0);
/// Steps that a member may take before its caller is told that the store is busy.
const TRIES_MAX: u8 = 16;
