//! Runs the jobs of a batch in one transaction and commits it.

use rusqlite::Connection;

use crate::store::sqlite::file::ownership::{FileIdentity, OwnedFile};
use crate::store::sqlite::jobs::{Answer, WriteJob};
use crate::store::sqlite::writer::batch::Batch;
use crate::store::sqlite::writer::job_error::JobError;
use crate::store::sqlite::writer::sweep::{Sweep, SweepStep};
use crate::store::{Fault, StoreError};

/// How a job that fails is rolled back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Savepoints {
    /// Only with the whole transaction. Fast, and right as long as no job fails.
    None,
    /// By itself: each job runs in a savepoint. For the second try, after some job failed.
    PerJob,
}

/// A batch whose statements have run, and which is not committed yet.
pub(crate) struct Written<'a> {
    pub(crate) batch: Batch<'a>,
    pub(crate) answers: Vec<Result<Answer, Fault>>,
    pub(crate) step: Option<SweepStep>,
}

/// Why a batch was not committed, or may not have been.
pub(crate) enum BatchError {
    /// A job failed after it may have written rows. Roll back and run the batch with a savepoint per job.
    BadJob,
    /// The sweep failed: fail it and run the jobs without it.
    Sweep(Fault),
    /// A statement before COMMIT failed, so nothing was committed.
    NotCommitted(rusqlite::Error),
    /// Another program wrote the file, so nothing was committed.
    OutsideWrite,
    /// COMMIT failed: the transaction may or may not be on disk.
    CommitUnsure(Option<rusqlite::Error>),
    /// The commit went to a file that has been deleted or replaced.
    FileReplaced,
}

/// Runs every job, then one step of `sweep`. Jobs that arrive meanwhile are added by `refill`: the commit costs the
/// same for many jobs as for few, and they would have to wait for it anyway.
pub(crate) fn write<'a>(
    mut batch: Batch<'a>,
    jobs: &mut Vec<WriteJob>,
    savepoints: Savepoints,
    sweep: Option<&Sweep>,
    mut refill: impl FnMut(&mut Vec<WriteJob>),
) -> Result<Written<'a>, BatchError> {
    let mut answers = Vec::with_capacity(jobs.len());
    while answers.len() < jobs.len() {
        for job in &jobs[answers.len()..] {
            answers.push(run(&mut batch, job, savepoints)?);
        }
        if savepoints == Savepoints::None && batch.has_begun() {
            refill(jobs);
        }
    }
    let step = sweep.map(|sweep| sweep.step(&mut batch)).transpose();
    let step = step.map_err(of_sweep)?;
    batch.write_meta().map_err(BatchError::NotCommitted)?;
    Ok(Written { batch, answers, step })
}

fn run(
    batch: &mut Batch<'_>,
    job: &WriteJob,
    savepoints: Savepoints,
) -> Result<Result<Answer, Fault>, BatchError> {
    let answer = match savepoints {
        Savepoints::None => batch.answer(job),
        Savepoints::PerJob => batch.answer_in_savepoint(job),
    };
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(JobError::Job(fault)) => Ok(Err(fault)),
        Err(trouble) => Err(of_job(trouble)),
    }
}

fn of_job(trouble: JobError) -> BatchError {
    match trouble {
        JobError::Job(_) | JobError::Statement(_) => BatchError::BadJob,
        JobError::Transaction(error) => BatchError::NotCommitted(error),
        JobError::OutsideWrite => BatchError::OutsideWrite,
    }
}

fn of_sweep(trouble: JobError) -> BatchError {
    match trouble {
        JobError::Job(fault) => BatchError::Sweep(fault),
        JobError::Statement(error) => {
            BatchError::Sweep(Fault::NotDone(StoreError::Unreadable(Box::new(error))))
        }
        trouble => of_job(trouble),
    }
}

/// Returns once the batch is on disk, and the next open knows that the WAL has it; at once if the batch wrote nothing.
pub(crate) fn commit(batch: &Batch<'_>, owned: &mut OwnedFile) -> Result<(), BatchError> {
    if !batch.has_begun() {
        return Ok(());
    }
    #[cfg(test)]
    batch.fault_before_commit()?;
    let done = batch.db.prepare_cached("COMMIT").and_then(|mut statement| statement.execute([]));
    done.map_err(|error| BatchError::CommitUnsure(Some(error)))?;
    owned.expect_wal().map_err(|_| BatchError::CommitUnsure(None))?;
    #[cfg(test)]
    batch.fault_after_commit()?;
    Ok(())
}

#[cfg(test)]
impl Batch<'_> {
    fn fault_before_commit(&self) -> Result<(), BatchError> {
        let fault = self.shared.faults.before_commit();
        fault.map_err(|()| BatchError::CommitUnsure(None))
    }

    fn fault_after_commit(&self) -> Result<(), BatchError> {
        let fault = self.shared.faults.after_commit();
        fault.map_err(|()| BatchError::CommitUnsure(None))
    }
}

/// Refuses a commit that went to a file which is no longer at the path of the store: the next open would not see it.
pub(crate) fn check_identity(
    owned: &OwnedFile,
    opened: FileIdentity,
    batch: &Batch<'_>,
) -> Result<(), BatchError> {
    if !batch.has_begun() {
        return Ok(());
    }
    match owned.identity() {
        Ok(found) if found == opened => Ok(()),
        _ => Err(BatchError::FileReplaced),
    }
}

/// Rolls back what was not committed.
pub(crate) fn roll_back(db: &Connection) {
    if !db.is_autocommit() {
        // If the rollback fails too, the caller reopens the file, and SQLite drops what has no commit.
        drop(db.execute_batch("ROLLBACK"));
    }
}
