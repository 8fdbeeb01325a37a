//! The writer thread: takes every queued job, runs them in one transaction, and answers them after its commit.

mod batch;
mod check_value;
pub(super) mod job_error;
mod notes;
pub(super) mod open_file;
mod reopen;
mod replaced;
mod row_changes;
mod sweep;
mod transaction;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::ErrorCode;

use self::batch::Batch;
use self::open_file::OpenFile;
use self::sweep::{Sweep, SweepStep};
use self::transaction::{
    BatchError, Savepoints, Written, check_identity, commit, roll_back, write,
};
use super::file::checkpoint::Step;
use super::file::open;
use super::file::ownership::{FileIdentity, OwnedFile};
use super::jobs::{Answer, WriteJob};
use super::layout::rows::unavailable;
use super::queue::Wait;
use super::shared::{Shared, Status, lock};
use crate::store::{Fault, StoreError};

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) owned: OwnedFile,
    /// `None` after an I/O error, until the file is reopened.
    pub(super) open: Option<OpenFile>,
    /// The files that were opened, to notice when they are deleted or replaced.
    pub(super) identity: FileIdentity,
    sweeps: VecDeque<Sweep>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        owned: OwnedFile,
        open: OpenFile,
        identity: FileIdentity,
    ) -> Self {
        Self { shared, owned, open: Some(open), identity, sweeps: VecDeque::new() }
    }

    /// Runs until the store is closed and every queued job is answered.
    pub(super) fn run(mut self) {
        let _exit = CloseOnExit(self.shared.clone());
        let mut jobs = Vec::new();
        let mut more = true;
        while more || !self.sweeps.is_empty() {
            let wait = if self.sweeps.is_empty() { Wait::Forever } else { Wait::No };
            more = self.shared.jobs.take(&mut jobs, BATCH_JOBS_MAX, wait);
            self.run_batch(&mut jobs);
            self.tend_wal();
        }
        self.close();
    }

    fn run_batch(&mut self, jobs: &mut Vec<WriteJob>) {
        self.sweeps.extend(take_sweeps(jobs));
        if jobs.is_empty() && self.sweeps.is_empty() {
            return;
        }
        if let Err(error) = self.may_write() {
            return self.refuse(jobs, error);
        }
        let mut done = self.try_batch(jobs, Savepoints::None);
        if let Err(BatchError::BadJob) = done {
            done = self.try_batch(jobs, Savepoints::PerJob);
        }
        match done {
            Ok(answers) => jobs.drain(..).zip(answers).for_each(|(job, answer)| job.answer(answer)),
            Err(failure) => self.failed(jobs, failure),
        }
    }

    fn may_write(&self) -> Result<(), fn() -> StoreError> {
        match &self.open {
            None => Err(down),
            // Another program reads the file, so the WAL cannot be restarted and would grow without end.
            Some(open) if open.wal.is_full() => Err(|| StoreError::Busy),
            Some(_) => Ok(()),
        }
    }

    /// One transaction. The index changes and jobs are answered only if it was committed.
    fn try_batch(
        &mut self,
        jobs: &mut Vec<WriteJob>,
        savepoints: Savepoints,
    ) -> Result<Vec<Result<Answer, Fault>>, BatchError> {
        let Some(open) = &mut self.open else {
            return Err(BatchError::BadJob);
        };
        let routes = open.routes.len();
        let batch = Batch::new(open, &self.shared);
        let sweep = self.sweeps.front().filter(|_| savepoints == Savepoints::None);
        let mut new_sweeps = Vec::new();
        let refill = |jobs: &mut Vec<WriteJob>| {
            let room = BATCH_JOBS_MAX.saturating_sub(jobs.len());
            self.shared.jobs.take(jobs, room, Wait::No);
            new_sweeps.extend(take_sweeps(jobs));
        };
        let written = write(batch, jobs, savepoints, sweep, refill);
        let written = written.and_then(|written| {
            commit(&written.batch, &mut self.owned)?;
            check_identity(&self.owned, self.identity, &written.batch)?;
            Ok(written)
        });
        let done = match written {
            Ok(Written { batch, answers, step }) => {
                let committed = batch.has_begun();
                let chain = batch.chain;
                open.meta = batch.publish();
                open.chain = chain;
                if committed {
                    open.wal.note_commit();
                }
                self.advance_sweep(step);
                Ok(answers)
            }
            Err(failure) => {
                roll_back(&open.db);
                open.routes.truncate(routes);
                Err(failure)
            }
        };
        self.sweeps.extend(new_sweeps);
        done
    }

    fn advance_sweep(&mut self, step: Option<SweepStep>) {
        let Some(step) = step else { return };
        let over = self.sweeps.front_mut().and_then(|sweep| sweep.advance(&step));
        if let Some(more) = over
            && let Some(sweep) = self.sweeps.pop_front()
        {
            sweep.answer(more);
        }
    }

    fn failed(&mut self, jobs: &mut Vec<WriteJob>, failure: BatchError) {
        match failure {
            BatchError::BadJob => {
                jobs.drain(..).for_each(|job| job.fail(Fault::NotDone(StoreError::Busy)))
            }
            BatchError::Sweep(fault) => {
                if let Some(sweep) = self.sweeps.pop_front() {
                    sweep.fail(fault);
                }
                self.run_batch(jobs);
            }
            BatchError::NotCommitted(error) => {
                let cause = Cause::new(Some(error));
                jobs.drain(..).for_each(|job| job.fail(Fault::NotDone(cause.store_error())));
                self.fail_sweeps(&cause);
                if !cause.is_busy() {
                    self.reopen_after_error();
                }
            }
            // Another program wrote the file: reopen it to rebuild the index.
            BatchError::OutsideWrite => {
                self.refuse(jobs, || StoreError::Busy);
                self.reopen_after_error();
            }
            BatchError::CommitUnsure(error) => {
                let cause = Cause::new(error);
                jobs.drain(..).for_each(|job| job.fail(Fault::Unsure(unavailable(cause.clone()))));
                self.fail_sweeps(&cause);
                self.reopen_after_error();
            }
            BatchError::FileReplaced => {
                let error = || Status::Replaced.error();
                jobs.drain(..).for_each(|job| job.fail(Fault::Unsure(error())));
                match self.owned.is_replaced(self.identity) {
                    true => self.recover_replaced(),
                    // The operating system could not tell.
                    false => self.reopen_until_up(),
                }
            }
        }
    }

    fn fail_sweeps(&mut self, cause: &Cause) {
        let sweeps = mem::take(&mut self.sweeps);
        sweeps.into_iter().for_each(|sweep| sweep.fail(Fault::Unsure(unavailable(cause.clone()))));
    }

    /// Refuses jobs and sweeps of which nothing was written.
    pub(super) fn refuse(&mut self, jobs: &mut Vec<WriteJob>, error: fn() -> StoreError) {
        let fault = || match self.shared.status() {
            Status::Replaced => Fault::NotDone(Status::Replaced.error()),
            _ => Fault::NotDone(error()),
        };
        let sweeps = mem::take(&mut self.sweeps);
        sweeps.into_iter().for_each(|sweep| sweep.fail(fault()));
        jobs.drain(..).for_each(|job| job.fail(fault()));
    }

    /// Between two batches: starts or finishes a checkpoint, and reopens the file if the checkpointer met an I/O error.
    fn tend_wal(&mut self) {
        // In this order: a checkpoint that failed sets `io_failed` before `checkpointed`.
        let checkpointed = self.shared.checkpointed.swap(false, Ordering::AcqRel);
        if self.shared.io_failed.swap(false, Ordering::AcqRel) {
            return self.reopen_after_error();
        }
        let Some(open) = &mut self.open else { return };
        let counted = open.wal.count_pages(&open.db);
        let kept = counted.and_then(|()| match open.wal.step(checkpointed) {
            Step::Nothing => Ok(()),
            Step::Start => open.start_checkpoint(&self.shared),
            Step::Finish => open.wal.finish(&open.db),
        });
        if kept.is_err() {
            self.reopen_after_error();
        }
    }

    /// Takes the store down for good: the file is not the one that was opened.
    pub(super) fn give_up(&mut self) {
        self.shared.set_status(Status::Replaced);
        self.drop_connections();
    }

    pub(super) fn drop_connections(&mut self) {
        *lock(&self.shared.reader) = None;
        *lock(&self.shared.checkpointer) = None;
        self.open = None;
    }

    fn close(mut self) {
        *lock(&self.shared.reader) = None;
        *lock(&self.shared.checkpointer) = None;
        // After an I/O error the WAL is left as it is: the next open reads it from its start.
        let failed = self.shared.io_failed.load(Ordering::Acquire);
        if let Some(open) = self.open.take().filter(|_| !failed) {
            // Every answered write is durable already. If this fails, the meta row is older and the next open checks
            // fewer rows.
            drop(open::close_cleanly(open.db, &open.meta, &mut self.owned));
        }
    }
}

/// Moves the sweeps out of `jobs`: a sweep spans many batches and waits in a queue of its own.
fn take_sweeps(jobs: &mut Vec<WriteJob>) -> impl Iterator<Item = Sweep> {
    let sweeps = jobs.extract_if(.., |job| matches!(job, WriteJob::Sweep(..)));
    sweeps.filter_map(|job| match job {
        WriteJob::Sweep(limit, until, reply) => Some(Sweep::new(limit, until, reply)),
        _ => None,
    })
}

/// The cause of a failed transaction, shared by the answers to all its jobs.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the transaction failed")]
pub(super) struct Cause(#[source] Option<Arc<rusqlite::Error>>);

impl Cause {
    fn new(error: Option<rusqlite::Error>) -> Self {
        Self(error.map(Arc::new))
    }

    fn store_error(&self) -> StoreError {
        match self.is_busy() {
            true => StoreError::Busy,
            false => unavailable(self.clone()),
        }
    }

    fn is_busy(&self) -> bool {
        let code = self.0.as_ref().and_then(|error| error.sqlite_error_code());
        matches!(code, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

pub(super) fn down() -> StoreError {
    Status::Down.error()
}

/// Closes the store and answers what is queued when the thread ends, by a panic too.
struct CloseOnExit(Arc<Shared>);

impl Drop for CloseOnExit {
    fn drop(&mut self) {
        self.0.close();
        let mut left = Vec::new();
        while self.0.jobs.take(&mut left, BATCH_JOBS_MAX, Wait::No) {}
        left.into_iter().for_each(|job| job.fail(Fault::NotDone(StoreError::Closed)));
        self.0.set_status(Status::Closed);
        self.0.closed.notify(usize::MAX);
    }
}

/// The most jobs in one transaction.
pub(super) const BATCH_JOBS_MAX: usize = 512;
