//! The writer's thread: whatever has queued is one transaction, and nobody is answered before its commit.

mod batch;
pub(super) mod member_error;
pub(super) mod reopen;
mod row_changes;
mod sweep;
mod transaction;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, ErrorCode};

use self::batch::Batch;
use self::sweep::{Portion, Sweep};
use self::transaction::{Failure, How, Written, check_place, commit, roll_back, write};
use super::file::checkpoint::{Log, Step};
use super::file::open;
use super::file::ownership::{Identity, Owned};
use super::jobs::{Answer, Job};
use super::layout::meta::Meta;
use super::layout::routes::Interned;
use super::layout::rows::unavailable;
use super::queue::Wait;
use super::shared::{Shared, Status, lock};
use crate::store::{Fault, StoreError};

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) owned: Owned,
    /// `None` while the disk has failed.
    pub(super) open: Option<Open>,
    /// Which files were opened.
    pub(super) identity: Identity,
    sweeps: VecDeque<Sweep>,
}

/// What the writer has of an open file.
pub(super) struct Open {
    pub(super) db: Connection,
    pub(super) meta: Meta,
    pub(super) interned: Interned,
    pub(super) log: Log,
    pub(super) data_version: i64,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, owned: Owned, open: Open, identity: Identity) -> Self {
        Self { shared, owned, open: Some(open), identity, sweeps: VecDeque::new() }
    }

    /// Until the store is closed and all that was asked is done.
    pub(super) fn run(mut self) {
        let _exit = Exit(self.shared.clone());
        let mut jobs = Vec::new();
        let mut more = true;
        while more || !self.sweeps.is_empty() {
            let wait = if self.sweeps.is_empty() { Wait::Forever } else { Wait::No };
            more = self.shared.jobs.take(&mut jobs, BATCH_JOBS_MAX, wait);
            self.round(&mut jobs);
            self.keep_house();
        }
        self.close();
    }

    fn round(&mut self, jobs: &mut Vec<Job>) {
        self.sweeps.extend(take_sweeps(jobs));
        if jobs.is_empty() && self.sweeps.is_empty() {
            return;
        }
        if let Err(error) = self.may_write() {
            return self.refuse(jobs, error);
        }
        let mut done = self.attempt(jobs, How::Together);
        if let Err(Failure::Member) = done {
            done = self.attempt(jobs, How::Apart);
        }
        match done {
            Ok(answers) => jobs.drain(..).zip(answers).for_each(|(job, answer)| job.answer(answer)),
            Err(failure) => self.failed(jobs, failure),
        }
    }

    fn may_write(&self) -> Result<(), fn() -> StoreError> {
        match &self.open {
            None => Err(down),
            // An outside reader keeps the log from being written back.
            Some(open) if open.log.is_full() => Err(|| StoreError::Busy),
            Some(_) => Ok(()),
        }
    }

    /// One transaction. Nothing is visible and nobody is answered unless it was committed.
    fn attempt(
        &mut self,
        jobs: &mut Vec<Job>,
        how: How,
    ) -> Result<Vec<Result<Answer, Fault>>, Failure> {
        let Some(open) = &mut self.open else {
            return Err(Failure::Member);
        };
        let interned = open.interned.len();
        let batch = Batch::new(open, &self.shared);
        let sweep = self.sweeps.front().filter(|_| how == How::Together);
        let mut sweeps_to_come = Vec::new();
        let refill = |jobs: &mut Vec<Job>| {
            let room = BATCH_JOBS_MAX.saturating_sub(jobs.len());
            self.shared.jobs.take(jobs, room, Wait::No);
            sweeps_to_come.extend(take_sweeps(jobs));
        };
        let written = write(batch, jobs, how, sweep, refill);
        let written = written.and_then(|written| {
            commit(&written.batch)?;
            check_place(&self.owned, self.identity, &written.batch)?;
            Ok(written)
        });
        let done = match written {
            Ok(Written { batch, answers, portion }) => {
                open.meta = batch.publish();
                self.advance(portion);
                Ok(answers)
            }
            Err(failure) => {
                roll_back(&open.db);
                open.interned.truncate(interned);
                Err(failure)
            }
        };
        self.sweeps.extend(sweeps_to_come);
        done
    }

    fn advance(&mut self, portion: Option<Portion>) {
        let Some(portion) = portion else { return };
        let over = self.sweeps.front_mut().and_then(|sweep| sweep.advance(&portion));
        if let Some(more) = over
            && let Some(sweep) = self.sweeps.pop_front()
        {
            sweep.answer(more);
        }
    }

    fn failed(&mut self, jobs: &mut Vec<Job>, failure: Failure) {
        match failure {
            Failure::Member => {
                jobs.drain(..).for_each(|job| job.fail(Fault::NotDone(StoreError::Busy)))
            }
            Failure::Sweep(fault) => {
                if let Some(sweep) = self.sweeps.pop_front() {
                    sweep.fail(fault);
                }
                self.round(jobs);
            }
            Failure::NotDone(error) => {
                let cause = Cause::new(Some(error));
                jobs.drain(..).for_each(|job| job.fail(Fault::NotDone(cause.store_error())));
                self.fail_sweeps(&cause);
                if !cause.is_busy() {
                    self.recover();
                }
            }
            // Another program wrote the file: it is there, and must be read again.
            Failure::Outside => {
                self.refuse(jobs, || StoreError::Busy);
                self.recover();
            }
            Failure::Unsure(error) => {
                let cause = Cause::new(error);
                jobs.drain(..).for_each(|job| job.fail(Fault::Unsure(unavailable(cause.clone()))));
                self.fail_sweeps(&cause);
                self.recover();
            }
            Failure::Replaced => {
                let error = || Status::Replaced.error();
                jobs.drain(..).for_each(|job| job.fail(Fault::Unsure(error())));
                self.give_up();
            }
        }
    }

    fn fail_sweeps(&mut self, cause: &Cause) {
        let sweeps = mem::take(&mut self.sweeps);
        sweeps.into_iter().for_each(|sweep| sweep.fail(Fault::Unsure(unavailable(cause.clone()))));
    }

    /// Answers work that was not begun.
    pub(super) fn refuse(&mut self, jobs: &mut Vec<Job>, error: fn() -> StoreError) {
        let fault = || match self.shared.status() {
            Status::Replaced => Fault::NotDone(Status::Replaced.error()),
            _ => Fault::NotDone(error()),
        };
        let sweeps = mem::take(&mut self.sweeps);
        sweeps.into_iter().for_each(|sweep| sweep.fail(fault()));
        jobs.drain(..).for_each(|job| job.fail(fault()));
    }

    /// Between two batches: the log.
    fn keep_house(&mut self) {
        // In this order: a checkpoint that failed says so before it says that it ended.
        let checkpointed = self.shared.checkpointed.swap(false, Ordering::AcqRel);
        if self.shared.disk_failed.swap(false, Ordering::AcqRel) {
            return self.recover();
        }
        let Some(open) = &mut self.open else { return };
        let kept = match open.log.step(checkpointed) {
            Step::Nothing => Ok(()),
            Step::Start => start_checkpoint(open, &self.shared),
            Step::Finish => open.log.finish(&open.db),
        };
        if kept.is_err() {
            self.recover();
        }
    }

    /// The file is not the one that was opened: nothing of it may be trusted, and nothing is opened again.
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
        // After an error of the disk the log is left as it is: the next open reads it from its start.
        let failed = self.shared.disk_failed.load(Ordering::Acquire);
        if let Some(open) = self.open.take().filter(|_| !failed) {
            // What was answered is durable; without the seal the next open merely checks less.
            drop(open::seal(open.db, &open.meta));
        }
    }
}

/// Sweeps go on from batch to batch, so they wait in a line of their own.
fn take_sweeps(jobs: &mut Vec<Job>) -> impl Iterator<Item = Sweep> {
    let sweeps = jobs.extract_if(.., |job| matches!(job, Job::Sweep(..)));
    sweeps.filter_map(|job| match job {
        Job::Sweep(limit, until, reply) => Some(Sweep::new(limit, until, reply)),
        _ => None,
    })
}

/// The file's word on its rows goes before what is written back, so that damage to it is noticed.
fn start_checkpoint(open: &mut Open, shared: &Shared) -> rusqlite::Result<()> {
    open.meta.write(&open.db)?;
    // Full: it is at work already.
    drop(shared.checkpoints.push(()));
    Ok(())
}

/// One cause, told to every member of a batch.
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
    unavailable("the disk failed; the store is being opened again")
}

/// However the thread ends, nobody waits for it any more.
struct Exit(Arc<Shared>);

impl Drop for Exit {
    fn drop(&mut self) {
        self.0.close();
        let mut left = Vec::new();
        while self.0.jobs.take(&mut left, BATCH_JOBS_MAX, Wait::No) {}
        left.into_iter().for_each(|job| job.fail(Fault::NotDone(StoreError::Closed)));
        self.0.set_status(Status::Closed);
        self.0.closed.notify(usize::MAX);
    }
}

/// Jobs in one transaction.
pub(super) const BATCH_JOBS_MAX: usize = 512;
