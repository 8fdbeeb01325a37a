//! The background thread: renews leases, ends the claims of dead tasks, reaps, sweeps and reconciles.
//!
//! The thread has a runtime of its own, so that a busy or blocked caller cannot make a lease lapse.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(feature = "simulation")]
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Inner;
use super::claim_guard::{LiveClaim, Orphan};
use super::disown::Entry;
use super::events::event_of;
use super::reconcile::{Question, find};
use crate::clock::as_ms;
use crate::crash::{CrashPoint, crash_during, crash_point};
use crate::engine::Write;
use crate::engine::lapse::Lapses;
use crate::planted::{Planted, planted};
use crate::record::{Record, SettledBy, State, StateKind, StateSet};
use crate::runtime_thread::RuntimeThread;
use crate::scope::OperationId;
use crate::store::{Beat, Cursor, Fault, Lease, Next, Page, Scan, Seen, Swap, Swept};

/// Starts the background thread. It ends once its handle is dropped and no operation is under way.
///
/// # Panics
/// If the operating system gives no thread: without one no lease could be kept.
pub(crate) fn start(once: Arc<Inner>) -> RuntimeThread {
    let thread = RuntimeThread::start("onlyonce-maintenance", |stopped| async {
        Rounds { once, stopped }.all().await
    });
    thread.expect("the operating system gives a thread")
}

/// The work of the background thread as a future, for a caller that drives it.
#[cfg(feature = "simulation")]
pub(crate) fn driven(once: Arc<Inner>) -> (RuntimeThread, impl Future<Output = ()>) {
    RuntimeThread::driven(Handle::current(), |stopped| Rounds { once, stopped }.all())
}

struct Rounds {
    once: Arc<Inner>,
    stopped: watch::Receiver<bool>,
}

impl Rounds {
    async fn all(self) {
        let watch_clock = self.watch_clock();
        tokio::join!(
            self.renew(),
            self.end(),
            self.reap(),
            self.sweep(),
            self.reconcile(),
            self.audit(),
            watch_clock
        );
    }

    /// Whether the handle was dropped or stopped.
    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Sleeps, and wakes at once when the handle is stopped.
    async fn pause(&self, pause: Duration) {
        let mut stopped = self.stopped.clone();
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = sleep(pause) => {}
        }
    }

    /// Sleeps for the shortest lease divided by `parts`. Wakes when the handle is stopped, and when a shorter lease
    /// comes into use: that lease must not lapse while this thread sleeps by a longer one.
    async fn pause_of_lease(&self, parts: u32) {
        let mut lease = self.once.lease_min.subscribe();
        let pause = *lease.borrow_and_update() / parts;
        tokio::select! {
            biased;
            _ = lease.changed() => {}
            () = self.pause(pause) => {}
        }
    }

    /// Renews the leases that are due, also while the process drains.
    async fn renew(&self) {
        while !(self.is_stopped() && self.once.live_claims.is_idle()) {
            self.renew_due().await;
            if self.is_stopped() {
                let tick = *self.once.lease_min.borrow() / RENEWAL_TICKS;
                sleep(tick.min(END_PAUSE)).await;
            } else {
                self.pause_of_lease(RENEWAL_TICKS).await;
            }
        }
    }

    async fn renew_due(&self) {
        let sent_at = self.once.clock.boot();
        let mut due = self.once.live_claims.all();
        due.retain(|claimed| claimed.renewal_due() <= sent_at && !planted(Planted::NoRenewal));
        due.sort_by_key(|claimed| claimed.lease);
        for same_lease in due.chunk_by(|a, b| a.lease == b.lease) {
            for batch in same_lease.chunks(RENEWALS_MAX) {
                self.renew_batch(batch, batch[0].lease, sent_at).await;
            }
        }
    }

    async fn renew_batch(&self, batch: &[Arc<LiveClaim>], lease: Lease, sent_at: Duration) {
        let held: Vec<_> = batch.iter().map(|claimed| (claimed.id, claimed.token)).collect();
        let renewal = self.once.store.renew(&held, lease);
        let beats = crash_during(CrashPoint::InRenewal, renewal).await;
        let unsure = beats.iter().filter(|beat| **beat == Beat::Unsure).count();
        self.once.counters.renewals_unsure.add(unsure);
        for (claimed, beat) in batch.iter().zip(beats) {
            if claimed.beat(beat, sent_at) {
                self.once.counters.renewals_lost.one();
                warn!(operation = %claimed.id, "lease lost: the record is no longer this owner's");
            }
        }
    }

    /// Ends the claims that have no task: those of dead tasks, and disowned ones.
    async fn end(&self) {
        let mut orphans = Vec::new();
        loop {
            orphans.append(&mut self.once.live_claims.take_orphans());
            let count = orphans.len();
            orphans = self.end_orphans(orphans).await;
            self.once.live_claims.end_orphans(count - orphans.len());
            self.release_disowned().await;
            let is_idle = orphans.is_empty() && self.once.disowned.len() == 0;
            if self.is_stopped() && self.once.live_claims.is_idle() {
                return;
            }
            let mut stopped = self.stopped.clone();
            tokio::select! {
                biased;
                () = self.once.live_claims.left.notified() => {}
                () = self.once.disowned.left.notified() => {}
                _ = stopped.wait_for(|stopped| *stopped), if !self.is_stopped() => {}
                () = sleep(END_PAUSE), if !is_idle || self.is_stopped() => {}
            }
        }
    }

    /// Ends these claims, and returns those whose end the store did not take.
    async fn end_orphans(&self, orphans: Vec<Orphan>) -> Vec<Orphan> {
        let mut left = Vec::new();
        for orphan in orphans {
            match self.once.store.swap(orphan.id, orphan.write.clone()).await {
                Ok(Swap::Done(_)) => {
                    tell_ended(&orphan);
                    self.tell_orphan(&orphan).await;
                }
                Ok(Swap::Stale(_)) => {}
                Err(_) => left.push(orphan),
            }
        }
        left
    }

    /// The end of a dead task's claim. A released record is gone, and then there is nothing to tell.
    async fn tell_orphan(&self, orphan: &Orphan) {
        if let Ok(Seen { record: Some(record), .. }) = self.once.store.load(orphan.id).await {
            self.once.tell_written(orphan.id, &record, event_of(&orphan.write), None);
        }
    }

    async fn release_disowned(&self) {
        for _ in 0..self.once.disowned.len() {
            let Some(entry) = self.once.disowned.pop() else {
                return;
            };
            if !self.release_for_good(&entry).await.unwrap_or(false) {
                self.once.disowned.push(entry);
            }
        }
    }

    /// Releases the claim, and says whether no copy of it can arrive any more: the store's clock, which judges a
    /// copy by its `not_after`, was past that moment before the release was sent.
    async fn release_for_good(&self, entry: &Entry) -> Result<bool, Fault> {
        let now = self.once.store.store_time(entry.id).await?;
        self.once.store.swap(entry.id, entry.write.clone()).await?;
        Ok(now > entry.not_after)
    }

    async fn reap(&self) {
        let mut lapses = Lapses::default();
        while !self.is_stopped() {
            // A scan that failed is made again in the next round.
            let _ = self.reap_once(&mut lapses).await;
            self.pause_of_lease(REAPS).await;
        }
    }

    async fn reap_once(&self, lapses: &mut Lapses) -> Result<(), Fault> {
        lapses.begin();
        let mut after = None;
        loop {
            let page = self.page(StateKind::Running, after).await?;
            crash_point(CrashPoint::InReap);
            self.reap_page(lapses, &page).await?;
            after = page.next;
            if after.is_none() {
                lapses.end();
            }
            if after.is_none() || self.is_stopped() {
                return Ok(());
            }
        }
    }

    async fn reap_page(&self, lapses: &mut Lapses, page: &Page) -> Result<(), Fault> {
        let boot = self.once.clock.boot();
        for (id, record) in &page.records {
            let Some(write) = lapses.judge(*id, record, page.now, boot) else {
                continue;
            };
            let event = event_of(&write);
            let write = self.once.with_record(write, record, None);
            match self.once.store.swap(*id, write).await {
                Ok(Swap::Done(_)) => {
                    crash_point(CrashPoint::AfterReap);
                    self.once.counters.reaped.one();
                    warn!(operation = %id, route = %record.route, "reaped: the owner is silent, and the outcome is unknown");
                    self.once.tell_written(*id, record, event, None);
                }
                // The next round finds this record again; the others do not wait for it.
                Ok(Swap::Stale(_)) | Err(Fault::NotDone(_)) => {}
                Err(unsure) => return Err(unsure),
            }
        }
        Ok(())
    }

    async fn sweep(&self) {
        while !self.is_stopped() {
            self.pause(self.once.limits.sweep_every).await;
            // The next sweep deletes what a failed one left.
            let _ = self.sweep_once().await;
            let _ = self.prune_trail().await;
            let _ = self.close_held().await;
        }
    }

    async fn sweep_once(&self) -> Result<(), Fault> {
        while !self.is_stopped() {
            if !self.once.sweep_piece().await?.more {
                break;
            }
            self.pause(SWEEP_PAUSE).await;
        }
        Ok(())
    }

    /// Deletes what is older than the audit trail keeps.
    async fn prune_trail(&self) -> Result<(), Fault> {
        let store = &self.once.store;
        let (Some(trail), Some(now)) = (store.trail(), store.time().now()) else {
            return Ok(());
        };
        let until = now.plus_ms(-as_ms(trail.keep()));
        while !self.is_stopped() && trail.prune(until, PRUNED_ROWS).await? {
            self.pause(SWEEP_PAUSE).await;
        }
        Ok(())
    }

    /// Appends to the audit trail what was read, a batch at a time.
    async fn audit(&self) {
        if self.once.store.trail().is_none() {
            return;
        }
        while !(self.is_stopped() && self.once.live_claims.is_idle()) {
            self.once.append_readings().await;
            match self.is_stopped() {
                true => sleep(END_PAUSE).await,
                false => self.pause(APPEND_PAUSE).await,
            }
        }
        // The last ones. What the store does not take now is lost with this process.
        self.once.append_readings().await;
    }

    /// Completes operations that were unknown for longer than `hold_max` of their route. An unknown operation is never
    /// deleted and never run again.
    async fn close_held(&self) -> Result<(), Fault> {
        let mut after = None;
        loop {
            let page = self.page(StateKind::Unknown, after).await?;
            for (id, record) in &page.records {
                self.close_if_over(*id, record).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn close_if_over(&self, id: OperationId, record: &Record) -> Result<(), Fault> {
        let (State::Unknown { since }, Some(now)) = (&record.state, self.once.store.time().now())
        else {
            return Ok(());
        };
        if since.plus(self.once.hold_max(&record.route)) > now {
            return Ok(());
        }
        let response = self.once.given_up.clone();
        if let Some(write) = Write::settle_for(record, SettledBy::Policy, response) {
            self.pass_over(id, record, write).await?;
        }
        Ok(())
    }

    /// Writes, and ignores a write that the store did not do: the next round finds the record again, and the other
    /// records do not wait for it.
    async fn pass_over(&self, id: OperationId, record: &Record, write: Write) -> Result<(), Fault> {
        let event = event_of(&write);
        let write = self.once.with_record(write, record, None);
        match self.once.store.swap(id, write).await {
            Ok(Swap::Done(_)) => {
                self.once.tell_written(id, record, event, None);
                Ok(())
            }
            Ok(Swap::Stale(_)) | Err(Fault::NotDone(_)) => Ok(()),
            Err(unsure) => Err(unsure),
        }
    }

    /// Says when the store's clock was set forward, and when it is right again.
    async fn watch_clock(&self) {
        let mut was_ahead = false;
        while !self.is_stopped() {
            let ahead = self.once.store.time().ahead_by();
            let is_ahead = ahead >= CLOCK_AHEAD_MIN;
            if is_ahead != was_ahead {
                was_ahead = is_ahead;
                tell_clock(is_ahead, ahead);
            }
            self.pause(CLOCK_PAUSE).await;
        }
    }

    /// Asks about the unknown outcomes of routes whose reconciler has credentials of its own.
    async fn reconcile(&self) {
        while !self.is_stopped() {
            self.pause(RECONCILE_PAUSE).await;
            // The next round asks about the outcomes that this one could not.
            let _ = self.reconcile_once().await;
        }
    }

    async fn reconcile_once(&self) -> Result<(), Fault> {
        let mut after = None;
        loop {
            let page = self.page(StateKind::Unknown, after).await?;
            for (id, record) in &page.records {
                self.reconcile_record(*id, record).await?;
            }
            after = page.next;
            if after.is_none() || self.is_stopped() {
                return Ok(());
            }
        }
    }

    async fn reconcile_record(&self, id: OperationId, record: &Record) -> Result<(), Fault> {
        let Some((policy, reconciler)) = self.once.background_reconciler(&record.route) else {
            return Ok(());
        };
        // To ask about another key would be answered "absent", and the operation would run again.
        let Some(key) = record.key.as_sent() else {
            return Ok(());
        };
        let question = Question::about(id, record, key, None);
        let finding = find(&*reconciler, question, &policy).await;
        let Some(now) = self.once.store.time().now() else {
            return Ok(());
        };
        if let Some(write) = self.once.conclusion(id, record, &policy, now, finding) {
            self.pass_over(id, record, write).await?;
        }
        Ok(())
    }

    async fn page(&self, kind: StateKind, after: Option<Cursor>) -> Result<Page, Fault> {
        let states = StateSet::of(&[kind]);
        self.once.store.scan(Scan { states, after, limit: PAGE_ROWS }).await
    }
}

impl Inner {
    /// Deletes everything that has expired, and returns how many records that were.
    pub(super) async fn sweep(&self) -> Result<usize, Fault> {
        let mut deleted = 0;
        loop {
            let swept = self.sweep_piece().await?;
            deleted += swept.deleted;
            if !swept.more {
                return Ok(deleted);
            }
            sleep(SWEEP_PAUSE).await;
        }
    }

    async fn sweep_piece(&self) -> Result<Swept, Fault> {
        let until = self.store.load(NO_OPERATION).await?.now;
        let sweep = self.store.sweep(until, self.limits.sweep_rows);
        let swept = crash_during(CrashPoint::InSweep, sweep).await?;
        self.counters.swept.add(swept.deleted);
        if !swept.more {
            let now_ms = as_ms(self.clock.boot()).unsigned_abs();
            self.swept_at_ms.store(now_ms, Ordering::Relaxed);
        }
        Ok(swept)
    }
}

fn tell_clock(is_ahead: bool, ahead: Duration) {
    match is_ahead {
        true => warn!(
            ahead_s = ahead.as_secs(),
            "the store's clock is too far ahead: it was set forward while this process ran, so this process does not \
             follow it, and keys are kept longer. Correct the clock of the store; if it is right, restart the process"
        ),
        false => info!("the store's clock is right again"),
    }
}

fn tell_ended(orphan: &Orphan) {
    match orphan.write.next {
        Next::Unknown { .. } => {
            warn!(operation = %orphan.id, "outcome unknown: the task that executed it ended early");
        }
        _ => warn!(operation = %orphan.id, "released: its task ended early, and had sent nothing"),
    }
}

/// Loaded only to read the store's time.
const NO_OPERATION: OperationId = OperationId::from_bytes([0; 16]);
/// How often in a lease the thread looks for renewals that are due.
const RENEWAL_TICKS: u32 = 12;
/// How often in a lease the reaper scans.
const REAPS: u32 = 3;
/// How many leases are renewed in one call.
const RENEWALS_MAX: usize = 1_000;
/// Pause between two tries to end the claims of dead tasks.
const END_PAUSE: Duration = Duration::from_millis(100);
/// Pause between two batches of a sweep, so that requests get their turn at the store.
const SWEEP_PAUSE: Duration = Duration::from_millis(20);
/// Pause between two batches that are appended to the audit trail.
const APPEND_PAUSE: Duration = Duration::from_millis(200);
/// Entries of a chain that are deleted at a time.
const PRUNED_ROWS: usize = 1_000;
/// Pause between two rounds of asking about unknown outcomes.
const RECONCILE_PAUSE: Duration = Duration::from_secs(5);
/// Less is what a clock may be off by when it is read.
const CLOCK_AHEAD_MIN: Duration = Duration::from_secs(1);
/// Pause between two looks at the store's clock.
const CLOCK_PAUSE: Duration = Duration::from_secs(1);
/// How many records are scanned at a time.
const PAGE_ROWS: usize = 500;
