//! An operation that this process owns: its token, its revision, and what is committed of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turns, MutexGuard as Turn, Notify};
use tokio::time::sleep;

use super::StepsState;
use super::database::{Change, CommitError, Database};
use super::error::StepsError;
use super::held::{Calling, Guard, Next, Point};
use super::rules::Rules;
use super::stopped::Reason;
use crate::clock::{Clock, SystemClock, as_ms};
use crate::record::Token;

pub(super) struct Owned<D: Database> {
    pub(super) database: D,
    pub(super) id: String,
    pub(super) token: Token,
    pub(super) rules: Rules,
    /// Of its request.
    pub(super) fingerprint: Vec<u8>,
    progress: Mutex<Progress>,
    is_lost: AtomicBool,
    lost: Notify,
    /// Of the one who may renew the lease.
    renewing: Turns<()>,
}

/// What changes while it runs.
struct Progress {
    revision: i64,
    attempts: u32,
    points: Vec<Point>,
    /// The call that was begun, now or in an earlier attempt, and has no point yet.
    calling: Option<Calling>,
    /// Counted from before the database was asked, so that the lease is over here before it is over there; and on a clock that
    /// goes on while the machine sleeps.
    leased_at: Duration,
}

/// What is stored when an attempt begins.
#[derive(Default)]
pub(super) struct Start {
    pub(super) revision: i64,
    pub(super) attempts: u32,
    pub(super) points: Vec<Point>,
    pub(super) calling: Option<Calling>,
    pub(super) fingerprint: Vec<u8>,
}

impl<D: Database> Owned<D> {
    pub(super) fn new(
        database: D,
        id: String,
        token: Token,
        rules: Rules,
        start: Start,
        leased_at: Duration,
    ) -> Self {
        let Start { revision, attempts, points, calling, fingerprint } = start;
        let progress = Progress { revision, attempts, points, calling, leased_at };
        Self {
            database,
            id,
            token,
            rules,
            fingerprint,
            progress: Mutex::new(progress),
            is_lost: AtomicBool::new(false),
            lost: Notify::new(),
            renewing: Turns::new(()),
        }
    }

    /// The committed point with this number.
    pub(super) fn point(&self, number: usize) -> Option<Point> {
        self.progress().points.get(number).cloned()
    }

    pub(super) fn attempts(&self) -> u32 {
        self.progress().attempts
    }

    pub(super) fn calling(&self) -> Option<Calling> {
        self.progress().calling.clone()
    }

    /// A step may have been done without its point: whatever the program makes of it, it must not be tried again.
    pub(super) fn mark_in_doubt(&self, step: &str) {
        let in_doubt = Calling { name: step.to_owned(), is_repeatable: false };
        self.progress().calling = Some(in_doubt);
    }

    /// Compares and swaps under the token.
    pub(super) async fn swap(&self, next: &Next) -> Result<bool, StepsError> {
        let asked_at = SystemClock.boot();
        let is_written = self.database.swap(&self.id, self.guard(), next).await?;
        if is_written {
            let mut progress = self.progress();
            progress.revision += 1;
            progress.calling.clone_from(&next.calling);
            progress.leased_at = asked_at;
        }
        Ok(is_written)
    }

    /// Commits a change under the token, in the transaction of its effect.
    pub(super) async fn commit(
        &self,
        change: &Change,
        open: Option<D::Work>,
    ) -> Result<(), CommitError> {
        let asked_at = SystemClock.boot();
        self.database.commit(&self.id, self.guard(), change, open).await?;
        let mut progress = self.progress();
        progress.revision += 1;
        progress.leased_at = asked_at;
        if let Change::Point { name, value, .. } = change {
            (progress.attempts, progress.calling) = (0, None);
            progress.points.push(Point { name: name.clone(), value: value.clone() });
        }
        Ok(())
    }

    /// Whether a commit without an answer was made. Another owner would have changed the revision once more.
    pub(super) async fn is_committed(&self, change: &Change) -> bool {
        let Change::Point { number, name, value, .. } = change else { return false };
        let Ok(Some(held)) = self.database.load(&self.id).await else { return false };
        let mut progress = self.progress();
        let is_ours = held.revision == progress.revision + 1
            && held.points.get(*number).is_some_and(|it| it.name == *name && it.value == *value);
        if is_ours {
            progress.revision += 1;
            (progress.attempts, progress.calling) = (0, None);
            progress.points = held.points;
        }
        is_ours
    }

    /// The same for the start of a call.
    pub(super) async fn is_marked(&self, calling: &Calling) -> bool {
        let Ok(Some(held)) = self.database.load(&self.id).await else { return false };
        let mut progress = self.progress();
        let is_ours = held.revision == progress.revision + 1
            && held.state == StepsState::Running
            && held.calling.as_ref() == Some(calling);
        if is_ours {
            (progress.revision, progress.calling) = (held.revision, held.calling);
        }
        is_ours
    }

    /// Before something is done that cannot be undone by a rollback: an owner whose lease may be over asks the database.
    pub(super) async fn demand_lease(&self) -> Result<(), Reason> {
        if self.is_lost.load(Ordering::Acquire) {
            return Err(Reason::Lost);
        }
        let age = SystemClock.boot().saturating_sub(self.progress().leased_at);
        if age < self.rules.lease / 2 {
            return Ok(());
        }
        match self.renew().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Reason::Lost),
            Err(error) => Err(Reason::Failed(error.into())),
        }
    }

    /// Before a step: where its transaction could not commit after a renewal, the lease is made long enough for the longest
    /// attempt, and not renewed until the turn is dropped.
    pub(super) async fn hold_still(&self) -> Result<Option<Turn<'_, ()>>, Reason> {
        let failed = |error: StepsError| Reason::Failed(error.into());
        if !self.database.works_on_snapshots().await.map_err(failed)? {
            return Ok(None);
        }
        let turn = self.renewing.lock().await;
        match self.renew_for(self.rules.attempt_max + self.rules.lease).await {
            Ok(true) => Ok(Some(turn)),
            Ok(false) => Err(Reason::Lost),
            Err(error) => Err(failed(error)),
        }
    }

    /// Renews the lease until it is lost.
    pub(super) async fn keep(&self) {
        loop {
            sleep(self.rules.lease / 3).await;
            let _turn = self.renewing.lock().await;
            match self.renew().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, operation = self.id, "a lease was not renewed");
                }
            }
        }
    }

    /// Ends when the lease is lost to another owner.
    pub(super) async fn until_lost(&self) {
        let lost = self.lost.notified();
        if !self.is_lost.load(Ordering::Acquire) {
            lost.await;
        }
    }

    async fn renew(&self) -> Result<bool, StepsError> {
        self.renew_for(self.rules.lease).await
    }

    async fn renew_for(&self, lease: Duration) -> Result<bool, StepsError> {
        let asked_at = SystemClock.boot();
        let is_kept = self.database.renew(&self.id, self.token, as_ms(lease)).await?;
        if is_kept {
            self.progress().leased_at = asked_at;
        } else {
            self.is_lost.store(true, Ordering::Release);
            self.lost.notify_waiters();
        }
        Ok(is_kept)
    }

    fn guard(&self) -> Guard {
        Guard { revision: self.progress().revision, owner: Some(self.token) }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the database may take to write how an attempt ended.
pub(super) const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);
