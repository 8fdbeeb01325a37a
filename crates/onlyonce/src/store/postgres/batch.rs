//! One commit of a writer: the members of a batch, each at its step.
//!
//! A claim and a completion are one statement each for all members that need it: their guards are in the statement. A
//! member that comes back in no row is read and judged by [`cas`], which knows whether it was done before; the record
//! that [`cas`] makes of it then replaces exactly the one that was read. All other writes begin there.

use futures_util::future::join_all;
use tokio_postgres::Row;

use super::answer::{Answer, Found};
use super::call::{SwapCall, WriteCall};
use super::columns::{self, Condition};
use super::connection::{Connection, NO_STANDBY, bounded};
use super::sql_error::{SqlError, cause};
use super::statement::{Statement, Write};
use super::value::{Moment, Uuid};
use crate::clock::StoreTime;
use crate::record::{Record, Revision, codec};
use crate::scope::OperationId;
use crate::store::cas::{self, Effect};
use crate::store::{Fault, Guard, Next, Seen, StoreError, Swap};

/// A call on its way.
pub(super) struct Member {
    pub(super) call: WriteCall,
    step: Step,
    /// How often another session was faster.
    tries: u8,
}

/// What is to be done for a member next.
pub(super) enum Step {
    /// Insert this record, whose times the server decides.
    Claim(Box<Record>),
    Complete,
    /// Read the record and judge the call by it.
    Judge,
    /// Replace the record of this revision.
    Put(Box<Record>, Revision),
    /// Delete the record of this revision.
    Delete(Revision),
}

impl Member {
    pub(super) fn new(call: WriteCall) -> Self {
        let step = match &call {
            WriteCall::Claim(draft, _) => Step::Claim(Box::new(cas::first_attempt(draft, NO_TIME))),
            WriteCall::Swap(swap, _) => first_step(swap),
        };
        Self { call, step, tries: 0 }
    }

    /// The same call at its next step.
    pub(super) fn at(self, step: Step) -> Self {
        Self { step, tries: self.tries + 1, ..self }
    }

    pub(super) fn id(&self) -> OperationId {
        self.call.id()
    }

    fn statement(&self) -> Statement {
        match self.step {
            Step::Claim(_) => Statement::Claim,
            Step::Complete => Statement::Complete,
            Step::Judge => Statement::Load,
            Step::Put(..) => Statement::Put,
            Step::Delete(_) => Statement::Delete,
        }
    }

    /// What the statement of its step takes.
    fn write(&self) -> Write<'_> {
        let row = columns::Row::of_id(self.id());
        match (&self.call, &self.step) {
            (_, Step::Claim(record)) => Write {
                row: columns::Row::of_record(self.id(), record),
                condition: Condition { not_after: self.not_after(), ..Condition::default() },
            },
            (_, Step::Put(record, revision)) => Write {
                row: columns::Row::of_record(self.id(), record),
                condition: Condition {
                    not_after: self.not_after(),
                    ..Condition::unchanged(*revision)
                },
            },
            (_, Step::Delete(revision)) => {
                Write { row, condition: Condition::unchanged(*revision) }
            }
            (WriteCall::Swap(swap, _), Step::Complete) => completion(swap).unwrap_or_default(),
            (_, Step::Judge | Step::Complete) => Write { row, ..Write::default() },
        }
    }

    /// After this the server must not write it any more.
    fn not_after(&self) -> Moment {
        Moment(match &self.call {
            WriteCall::Claim(draft, _) => draft.not_after,
            WriteCall::Swap(swap, _) => match &swap.to {
                Next::Running(attempt) => attempt.draft.not_after,
                _ => StoreTime::MAX,
            },
        })
    }

    /// Answers the caller; whether the record was written.
    pub(super) fn answer(self, outcome: Outcome) -> bool {
        match (self.call, outcome) {
            (WriteCall::Claim(_, reply), Outcome::Seen(seen, wrote)) => {
                drop(reply.send(Ok(seen)));
                wrote
            }
            (WriteCall::Swap(_, reply), Outcome::Swapped(swap)) => {
                let wrote = matches!(swap, Swap::Done(_));
                drop(reply.send(Ok(swap)));
                wrote
            }
            (call, Outcome::Failed(fault)) => {
                call.fail(fault);
                false
            }
            (call, _) => {
                call.fail(odd());
                false
            }
        }
    }
}

/// A completion is guarded in its statement, unless its owner may write over a completed record: that may be its own.
fn first_step(swap: &SwapCall) -> Step {
    let is_guarded = match swap.guard {
        Guard::Owner { states, .. } => columns::open_states(states) != 0,
        Guard::Unchanged(_) => true,
    };
    if is_guarded && matches!(swap.to, Next::Completed { .. }) {
        Step::Complete
    } else {
        Step::Judge
    }
}

fn completion(swap: &SwapCall) -> Option<Write<'_>> {
    let Next::Completed { settled_by, response, token } = &swap.to else {
        return None;
    };
    let row = columns::Row::of_id(swap.id);
    let row = row.with_response(codec::settled_by_tag(*settled_by).into(), response);
    let new_token = token.map(|token| Uuid(*token.as_bytes()));
    Some(Write { row, condition: Condition { new_token, ..Condition::of(&swap.guard) } })
}

/// What became of a member.
#[expect(
    clippy::large_enum_variant,
    reason = "most answers are the large one, and a box would be an allocation for each"
)]
pub(super) enum Outcome {
    /// Answered; the flag says that the record was written.
    Seen(Seen, bool),
    Swapped(Swap),
    Failed(Fault),
    /// Not yet.
    Next(Step),
}

/// Does the next step of each member, sorted by id and each id once, in one commit. The outcomes are in the order of
/// the members. With `hurry` it hardly waits for the locks of others.
pub(super) async fn attempt(
    connection: &Connection,
    members: &[Member],
    hurry: bool,
) -> Result<Vec<Outcome>, SqlError> {
    let answers = bounded(send(connection, members, hurry)).await?;
    let wrote = answers.iter().any(|(statement, _)| *statement != Statement::Load);
    if connection.take_warning() && wrote {
        return Err(SqlError::Unsure(cause(NO_STANDBY)));
    }
    let read = |(statement, rows): (Statement, Vec<Row>)| (statement, Answer::read(&rows));
    let mut answers: Vec<_> = answers.into_iter().map(read).collect();
    let outcome = |member: &Member| {
        let answer = answers.iter_mut().find(|(statement, _)| *statement == member.statement());
        match answer {
            Some((_, Ok(answer))) => outcome(member, answer.found.remove(&member.id()), answer.now),
            Some((_, Err(error))) => Outcome::Failed(error.fault()),
            None => Outcome::Failed(odd()),
        }
    };
    Ok(members.iter().map(outcome).collect())
}

/// All statements at once, in order, and in one transaction: so the first error is the error of all.
async fn send(
    connection: &Connection,
    members: &[Member],
    hurry: bool,
) -> Result<Vec<(Statement, Vec<Row>)>, SqlError> {
    let params = STATEMENTS.iter().filter_map(|statement| {
        let of = members.iter().filter(|member| member.statement() == *statement);
        let writes: Vec<_> = of.map(Member::write).collect();
        (!writes.is_empty()).then(|| (*statement, statement.params(writes)))
    });
    let params: Vec<_> = params.collect();
    if let ([(statement, params)], false) = (&params[..], hurry) {
        return Ok(vec![(*statement, connection.query(*statement, params).await?)]);
    }
    let begin = if hurry { BEGIN_IN_A_HURRY } else { "BEGIN" };
    let queries = params.iter().map(|(statement, params)| connection.query(*statement, params));
    // Each future sends its message when it is polled first, so the order is that of the text.
    let (begun, answers, committed) = futures_util::future::join3(
        connection.client.batch_execute(begin),
        join_all(queries),
        connection.client.batch_execute("COMMIT"),
    )
    .await;
    begun?;
    let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    committed?;
    Ok(params.iter().map(|(statement, _)| *statement).zip(answers).collect())
}

fn outcome(member: &Member, found: Option<Found>, now: StoreTime) -> Outcome {
    let record = match found {
        Some(Found::Written(revision)) => return written(member, revision, now),
        Some(Found::There(record)) => match *record {
            Ok(record) => Some(record),
            Err(error) => return Outcome::Failed(Fault::NotDone(error)),
        },
        None => None,
    };
    match (&member.call, &member.step) {
        (WriteCall::Claim(draft, _), _) if record.is_none() && now <= draft.not_after => {
            next(member, Step::Claim(Box::new(cas::first_attempt(draft, NO_TIME))))
        }
        (WriteCall::Claim(draft, _), _) => {
            let mine = cas::is_mine(record.as_ref(), draft);
            Outcome::Seen(Seen { record, mine, now }, false)
        }
        (WriteCall::Swap(swap, _), Step::Judge) => judge(member, swap, record, now),
        (WriteCall::Swap(..), _) => next(member, Step::Judge),
    }
}

fn written(member: &Member, revision: Option<Revision>, now: StoreTime) -> Outcome {
    match (&member.call, &member.step, revision) {
        (WriteCall::Claim(draft, _), ..) => {
            Outcome::Seen(Seen { record: cas::claim(None, draft, now), mine: true, now }, true)
        }
        (WriteCall::Swap(..), Step::Delete(_), Some(revision)) => {
            Outcome::Swapped(Swap::Done(Revision { count: u64::MAX, ..revision }))
        }
        (WriteCall::Swap(..), _, Some(revision)) => Outcome::Swapped(Swap::Done(revision)),
        (WriteCall::Swap(..), _, None) => Outcome::Failed(odd()),
    }
}

fn judge(member: &Member, swap: &SwapCall, current: Option<Record>, now: StoreTime) -> Outcome {
    match (cas::swap(current.as_ref(), &swap.guard, &swap.to, now), current) {
        (Effect::Already(revision), _) => Outcome::Swapped(Swap::Done(revision)),
        (Effect::Write(record), Some(current)) => {
            next(member, Step::Put(record, current.revision()))
        }
        (Effect::Delete(_), Some(current)) => next(member, Step::Delete(current.revision())),
        (_, record) => Outcome::Swapped(Swap::Stale(Box::new(Seen { record, mine: false, now }))),
    }
}

/// The next step, unless others were faster too often.
fn next(member: &Member, step: Step) -> Outcome {
    if member.tries >= TRIES_MAX {
        return Outcome::Failed(Fault::NotDone(StoreError::Busy));
    }
    Outcome::Next(step)
}

fn odd() -> Fault {
    Fault::Unsure(StoreError::Unavailable("the server gave an answer that fits no question".into()))
}

/// The statements of a writer, in the order in which a batch sends them.
pub(super) const STATEMENTS: &[Statement] =
    &[Statement::Load, Statement::Claim, Statement::Complete, Statement::Put, Statement::Delete];
/// The server takes the times of a claim.
const NO_TIME: StoreTime = StoreTime::from_ms(0);
const BEGIN_IN_A_HURRY: &str = "BEGIN; SET LOCAL lock_timeout = 20";
/// Steps that a member may take before its caller is told that the store is busy.
const TRIES_MAX: u8 = 16;
