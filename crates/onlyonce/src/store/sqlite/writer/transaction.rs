//! A batch from its first statement to its commit, and what may go wrong on the way.

use rusqlite::Connection;

use crate::store::sqlite::file::ownership::{Identity, Owned};
use crate::store::sqlite::jobs::{Answer, Job};
use crate::store::sqlite::writer::batch::Batch;
use crate::store::sqlite::writer::member_error::Trouble;
use crate::store::sqlite::writer::sweep::{Portion, Sweep};
use crate::store::{Fault, StoreError};

/// How the members of a batch run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// A bad member spoils the attempt, and is only known to exist.
    Together,
    /// Each can be undone by itself.
    Apart,
}

/// A batch whose statements have run.
pub(crate) struct Written<'a> {
    pub(crate) batch: Batch<'a>,
    pub(crate) answers: Vec<Result<Answer, Fault>>,
    pub(crate) portion: Option<Portion>,
}

/// Why an attempt was not committed, or may not have been.
pub(crate) enum Failure {
    /// Some member is bad.
    Member,
    /// The sweep cannot go on.
    Sweep(Fault),
    /// Nothing was committed, because nothing tried to.
    NotDone(rusqlite::Error),
    /// Nothing was committed, because another program wrote the file.
    Outside,
    /// The commit failed.
    Unsure(Option<rusqlite::Error>),
    /// The commit went to a file that is no longer in its place.
    Replaced,
}

/// Runs every member, and a portion of `sweep`. What `refill` adds meanwhile comes along: a commit
/// costs the same for many as for few, and nobody waits for it who would not wait anyway.
pub(crate) fn write<'a>(
    mut batch: Batch<'a>,
    jobs: &mut Vec<Job>,
    how: How,
    sweep: Option<&Sweep>,
    mut refill: impl FnMut(&mut Vec<Job>),
) -> Result<Written<'a>, Failure> {
    let mut answers = Vec::with_capacity(jobs.len());
    while answers.len() < jobs.len() {
        for job in &jobs[answers.len()..] {
            answers.push(run(&mut batch, job, how)?);
        }
        if how == How::Together && batch.has_begun() {
            refill(jobs);
        }
    }
    let portion = sweep.map(|sweep| sweep.portion(&mut batch)).transpose();
    let portion = portion.map_err(of_sweep)?;
    batch.write_meta().map_err(Failure::NotDone)?;
    Ok(Written { batch, answers, portion })
}

fn run(batch: &mut Batch<'_>, job: &Job, how: How) -> Result<Result<Answer, Fault>, Failure> {
    let answer = match how {
        How::Together => batch.answer(job),
        How::Apart => batch.answer_apart(job),
    };
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(Trouble::Alone(fault)) => Ok(Err(fault)),
        Err(trouble) => Err(of_job(trouble)),
    }
}

fn of_job(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Alone(_) | Trouble::Member(_) => Failure::Member,
        Trouble::Whole(error) => Failure::NotDone(error),
        Trouble::Outside => Failure::Outside,
    }
}

fn of_sweep(trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Alone(fault) => Failure::Sweep(fault),
        Trouble::Member(error) => {
            Failure::Sweep(Fault::NotDone(StoreError::Unreadable(Box::new(error))))
        }
        trouble => of_job(trouble),
    }
}

/// Returns once the batch is on disk. Without a write there is nothing to wait for.
pub(crate) fn commit(batch: &Batch<'_>) -> Result<(), Failure> {
    if !batch.has_begun() {
        return Ok(());
    }
    #[cfg(test)]
    batch.fault_before_commit()?;
    let done = batch.db.prepare_cached("COMMIT").and_then(|mut statement| statement.execute([]));
    done.map_err(|error| Failure::Unsure(Some(error)))?;
    #[cfg(test)]
    batch.fault_after_commit()?;
    Ok(())
}

#[cfg(test)]
impl Batch<'_> {
    fn fault_before_commit(&self) -> Result<(), Failure> {
        let fault = self.shared.faults.before_commit();
        fault.map_err(|()| Failure::Unsure(None))
    }

    fn fault_after_commit(&self) -> Result<(), Failure> {
        let fault = self.shared.faults.after_commit();
        fault.map_err(|()| Failure::Unsure(None))
    }
}

/// A commit into a file that nobody will find again must not be acknowledged.
pub(crate) fn check_place(
    owned: &Owned,
    opened: Identity,
    batch: &Batch<'_>,
) -> Result<(), Failure> {
    if !batch.has_begun() {
        return Ok(());
    }
    match owned.identity() {
        Ok(found) if found == opened => Ok(()),
        _ => Err(Failure::Replaced),
    }
}

/// Takes back what was not committed.
pub(crate) fn roll_back(db: &Connection) {
    if !db.is_autocommit() {
        // If even this fails the connection is given up, and without a commit nothing was done.
        drop(db.execute_batch("ROLLBACK"));
    }
}
