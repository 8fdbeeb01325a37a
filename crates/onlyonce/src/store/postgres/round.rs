//! One round of a writer: the members of a batch, each at its step, in one commit.
//!
//! A claim, a completion and a deletion are one statement each for all members that need it: their guards
//! are in the statement. Whoever comes back in no row is read and judged by [`cas`], which knows whether it
//! was done before; what remains to be written is written over exactly what was read. All other writes
//! begin there.

use futures_util::future::join_all;
use tokio_postgres::Row;

use super::job::{Job, Swapping, Task, open_states};
use super::link::{Link, bounded};
use super::params::{Claims, Completions, Deletions, Loads, Puts};
use super::row::{Said, said};
use super::trouble::{Cause, Trouble};
use crate::clock::StoreTime;
use crate::record::{Record, Revision};
use crate::scope::OperationId;
use crate::store::cas::{self, Effect};
use crate::store::time::{Time, Told};
use crate::store::{Fault, Guard, Next, Seen, StoreError, Swap};

/// A job on its way.
pub(super) struct Member {
    pub(super) job: Job,
    pub(super) step: Step,
    /// How often it was overtaken.
    tries: u8,
}

/// What is to be done for a member next.
pub(super) enum Step {
    Claim,
    Complete,
    Delete(Guard),
    Judge,
    Put(Box<Put>),
}

/// A whole record, in place of the one that was read.
pub(super) struct Put {
    pub(super) record: Record,
    pub(super) from: Revision,
    pub(super) not_after: StoreTime,
}

impl Member {
    pub(super) fn new(job: Job) -> Self {
        let step = match &job.task {
            Task::Claim(..) => Step::Claim,
            Task::Swap(swap, _) => first_step(swap),
        };
        Self { job, step, tries: 0 }
    }

    pub(super) fn id(&self) -> OperationId {
        self.job.task.id()
    }

    fn kind(&self) -> usize {
        match self.step {
            Step::Judge => LOAD,
            Step::Claim => CLAIM,
            Step::Complete => COMPLETE,
            Step::Delete(_) => DELETE,
            Step::Put(_) => PUT,
        }
    }
}

/// An owner that may write over a completed record must be judged: it may be its own.
fn first_step(swap: &Swapping) -> Step {
    let is_guarded = match swap.guard {
        Guard::Owner { states, .. } => open_states(states) != 0,
        Guard::Unchanged(_) => true,
    };
    match swap.to {
        Next::Completed { .. } if is_guarded => Step::Complete,
        Next::Absent if is_guarded => Step::Delete(swap.guard),
        _ => Step::Judge,
    }
}

/// What became of a member.
#[expect(
    clippy::large_enum_variant,
    reason = "most answers are the large one, and a box would be an allocation for each"
)]
pub(super) enum Fate {
    /// Answered; the flag says that its record was written.
    Seen(Seen, bool),
    Swapped(Swap),
    Failed(Fault),
    /// Not yet.
    Next(Step),
}

/// How a batch is sent.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    /// It hardly waits for the locks of others.
    pub(super) hurries: bool,
    /// It counts on no race, and is undone by one.
    pub(super) is_bold: bool,
}

/// Does the next step of each member, sorted by id and each id once, in one commit. The fates are in the
/// order of the members.
pub(super) async fn attempt(
    link: &Link,
    time: &Time,
    members: &[Member],
    manner: Manner,
) -> Result<Vec<Fate>, Trouble> {
    let asked_at = time.boot();
    let (kinds, answers) = bounded(send(link, time, members, manner)).await?;
    if link.take_warning() && kinds.iter().any(|kind| *kind != LOAD) {
        let why = "the server warned: a standby may not have this commit";
        return Err(Trouble::Unsure(Cause::new(why)));
    }
    let mut told = [None; KINDS];
    let mut found: Vec<Option<Found>> = members.iter().map(|_| None).collect();
    for (kind, rows) in kinds.iter().zip(answers) {
        for row in &rows {
            match hear(row).map_err(|why| Trouble::Unsure(Cause::new(why)))? {
                Heard::Time(answer) => {
                    let answer = Some(time.tell(answer, asked_at));
                    if *kind == BOTH {
                        (told[CLAIM], told[COMPLETE]) = (answer, answer);
                    } else {
                        told[*kind] = answer;
                    }
                }
                Heard::Found(id, is) => {
                    if let Ok(at) = members.binary_search_by_key(&id, Member::id) {
                        found[at] = Some(is);
                    }
                }
            }
        }
    }
    let fate = |(member, found): (&Member, Option<Found>)| match told[member.kind()] {
        Some(told) => fate(member, found, told),
        // Nobody may pass the store by because its records are kept elsewhere.
        None => Fate::Failed(Fault::NotDone(StoreError::Closed)),
    };
    Ok(members.iter().zip(found).map(fate).collect())
}

/// What an answer says of an id.
enum Found {
    Wrote(Option<Revision>),
    There(Box<Result<Record, StoreError>>),
}

enum Heard {
    Time(Told),
    Found(OperationId, Found),
}

fn hear(row: &Row) -> Result<Heard, crate::store::BoxError> {
    Ok(match said(row)? {
        Said::Time(told) => Heard::Time(told),
        Said::Wrote(id) => Heard::Found(id, Found::Wrote(super::row::revision(row))),
        Said::There(id, record) => Heard::Found(id, Found::There(record)),
    })
}

/// All statements at once, in order, and in one transaction: so the first error is the error of all.
async fn send(
    link: &Link,
    time: &Time,
    members: &[Member],
    manner: Manner,
) -> Result<(Vec<usize>, Vec<Vec<Row>>), Trouble> {
    let known = time.known();
    let of = |kind| members.iter().filter(move |member| member.kind() == kind);
    let loads = Loads::new(known, of(LOAD).map(Member::id));
    let claims = Claims::new(known, of(CLAIM));
    let completions = Completions::new(known, of(COMPLETE));
    let deletions = Deletions::new(known, of(DELETE));
    let puts = Puts::new(known, of(PUT));
    let both = [&claims.params()[..], &completions.params()[2..]].concat();
    let params = [
        loads.params(),
        claims.params(),
        completions.params(),
        deletions.params(),
        puts.params(),
        both,
    ];
    let mut kinds: Vec<usize> = (0..KINDS).filter(|kind| of(*kind).next().is_some()).collect();
    if kinds == [CLAIM, COMPLETE] {
        kinds = vec![BOTH];
    }
    let begin = if manner.hurries { BEGIN_IN_A_HURRY } else { "BEGIN" };
    let commands = (manner.hurries || kinds.len() > 1)
        .then(|| [begin, "COMMIT"].map(|command| link.client.batch_execute(command)));
    let [begin, commit] = commands.map_or([None, None], |commands| commands.map(Some));
    let query = |kind: &usize| link.query(statement(*kind, manner), &params[*kind]);
    let queries = kinds.iter().map(|kind| Sent::Query(query(kind)));
    let sent = begin.into_iter().map(Sent::Command).chain(queries);
    let sent: Vec<_> = sent.chain(commit.into_iter().map(Sent::Command)).collect();
    let answers = join_all(sent.into_iter().map(Sent::answer)).await;
    let answers: Result<Vec<Option<Vec<Row>>>, Trouble> = answers.into_iter().collect();
    Ok((kinds, answers?.into_iter().flatten().collect()))
}

fn statement(kind: usize, manner: Manner) -> usize {
    match kind {
        CLAIM if !manner.is_bold => CLAIM_CAREFULLY,
        BOTH if !manner.is_bold => BOTH_CAREFULLY,
        kind => kind,
    }
}

/// A message to the server, in a pipeline of them.
enum Sent<Q, C> {
    Query(Q),
    Command(C),
}

impl<Q, C> Sent<Q, C>
where
    Q: Future<Output = Result<Vec<Row>, Trouble>>,
    C: Future<Output = Result<(), tokio_postgres::Error>>,
{
    async fn answer(self) -> Result<Option<Vec<Row>>, Trouble> {
        match self {
            Self::Query(query) => query.await.map(Some),
            Self::Command(command) => Ok(command.await.map(|()| None)?),
        }
    }
}

fn fate(member: &Member, found: Option<Found>, told: Told) -> Fate {
    let record = match found {
        Some(Found::There(record)) => match *record {
            Ok(record) => Some(record),
            Err(error) => return Fate::Failed(Fault::NotDone(error)),
        },
        Some(Found::Wrote(revision)) => return written(member, revision, told),
        None => None,
    };
    match (&member.job.task, &member.step) {
        (Task::Claim(draft, _), _) => {
            let is_late = told.now > draft.not_after;
            if record.is_none() && !is_late {
                return again(member, Step::Claim);
            }
            let mine = cas::is_mine(record.as_ref(), draft);
            Fate::Seen(seen(record, mine, told), false)
        }
        (Task::Swap(swap, _), Step::Judge) => judge(member, swap, record, told),
        (Task::Swap(..), _) => again(member, Step::Judge),
    }
}

fn written(member: &Member, revision: Option<Revision>, told: Told) -> Fate {
    match (&member.job.task, revision) {
        (Task::Claim(draft, _), _) => {
            Fate::Seen(seen(cas::claim(None, draft, told.now), true, told), true)
        }
        (Task::Swap(..), Some(revision)) => {
            let count =
                if matches!(member.step, Step::Delete(_)) { u64::MAX } else { revision.count };
            Fate::Swapped(Swap::Done(Revision { count, ..revision }))
        }
        (Task::Swap(..), None) => Fate::Failed(Fault::Unsure(StoreError::Unavailable(ODD.into()))),
    }
}

fn judge(member: &Member, swap: &Swapping, current: Option<Record>, told: Told) -> Fate {
    let Swapping { guard, to, .. } = swap;
    let effect = cas::swap(current.as_ref(), guard, to, told.now);
    match (effect, current) {
        (Effect::Already(revision), _) => Fate::Swapped(Swap::Done(revision)),
        (Effect::Write(record), Some(current)) => {
            let not_after = match to {
                Next::Running(attempt) => attempt.draft.not_after,
                _ => StoreTime::MAX,
            };
            let put = Put { record: *record, from: current.revision(), not_after };
            again(member, Step::Put(Box::new(put)))
        }
        (Effect::Delete(_), Some(current)) => {
            again(member, Step::Delete(Guard::Unchanged(current.revision())))
        }
        (_, current) => Fate::Swapped(Swap::Stale(Box::new(seen(current, false, told)))),
    }
}

/// The next step, unless others were faster too often.
fn again(member: &Member, step: Step) -> Fate {
    if member.tries >= TRIES_MAX {
        return Fate::Failed(Fault::NotDone(StoreError::Busy));
    }
    Fate::Next(step)
}

impl Member {
    /// The same job at its next step.
    pub(super) fn at(self, step: Step) -> Self {
        Self { step, tries: self.tries + 1, ..self }
    }

    /// Answers its caller; whether its record was written.
    pub(super) fn answer(self, fate: Fate) -> bool {
        match (self.job.task, fate) {
            (Task::Claim(_, reply), Fate::Seen(seen, wrote)) => {
                drop(reply.send(Ok(seen)));
                wrote
            }
            (Task::Swap(_, reply), Fate::Swapped(swap)) => {
                let wrote = matches!(swap, Swap::Done(_));
                drop(reply.send(Ok(swap)));
                wrote
            }
            (task, Fate::Failed(fault)) => {
                task.fail(fault);
                false
            }
            (task, _) => {
                task.fail(Fault::Unsure(StoreError::Unavailable(ODD.into())));
                false
            }
        }
    }
}

fn seen(record: Option<Record>, mine: bool, told: Told) -> Seen {
    Seen { record, mine, now: told.now }
}

/// The statements of a writer, in the order in which it prepares them.
pub(super) const LOAD: usize = 0;
pub(super) const CLAIM: usize = 1;
pub(super) const COMPLETE: usize = 2;
pub(super) const DELETE: usize = 3;
pub(super) const PUT: usize = 4;
const KINDS: usize = 5;
/// Claims and completions in one.
pub(super) const BOTH: usize = 5;
/// The same where a race is counted on.
const CLAIM_CAREFULLY: usize = 6;
const BOTH_CAREFULLY: usize = 7;

const BEGIN_IN_A_HURRY: &str = "BEGIN; SET LOCAL lock_timeout = 20";
/// Steps that a member may take before it is told that the store is busy.
const TRIES_MAX: u8 = 16;
pub(super) const MOVED: &str = "the records of this schema are kept elsewhere now";
const ODD: &str = "the server gave an answer that fits no question";
