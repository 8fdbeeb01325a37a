//! Writes to the filter, in the background: a few bounded queues, each worked off in order.
//!
//! All writes of one record go through the same queue. So this process cannot write a copy that was read before a
//! change of the record after it has deleted the entry because of that change.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use super::Inner;
use super::entry::EntryId;
use super::filter::count;
use super::stale_entries::StaleMark;
use crate::clock::{Clock, SystemClock};
use crate::record::Record;
use crate::runtime_thread;
use crate::scope::OperationId;
use crate::store::Maintain;
use crate::store::redis::RedisOpenError;

/// The queues, and the thread that works them off. Dropped, it ends the thread and waits for it. Entries that wait are still
/// deleted then, for [`DROP_WAIT`]; copies are given up, so that who drops a store does not wait for its database.
pub(super) struct FilterWrites {
    queues: Vec<mpsc::Sender<Job>>,
    /// Dropped with the handle.
    held: Option<watch::Sender<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(super) enum Job {
    /// The record was settled: read it from the authority, and copy it to Redis.
    Settled(OperationId),
    /// The record was read, when the authority was asked at that time of the system's boot clock: copy it to Redis.
    Read(EntryId, Box<Record>, Duration),
    /// The record was changed: delete its entry. When Redis has confirmed that, clear the mark and tell who waits.
    Changed(EntryId, Option<StaleMark>, oneshot::Sender<bool>),
}

impl Job {
    const fn id(&self) -> OperationId {
        match self {
            Self::Settled(id) => *id,
            Self::Read(entry, ..) | Self::Changed(entry, ..) => entry.id,
        }
    }
}

impl FilterWrites {
    pub(super) fn start<S: Maintain>(inner: &Arc<Inner<S>>) -> Result<Self, RedisOpenError> {
        let (queues, jobs): (Vec<_>, Vec<_>) =
            (0..QUEUES).map(|_| mpsc::channel(QUEUE_MAX)).unzip();
        let inner = inner.clone();
        let (held, dropped) = watch::channel(());
        let run = || async move {
            let works = join_all(jobs.into_iter().map(|jobs| work(&inner, jobs, dropped.clone())));
            tokio::select! {
                _ = works => {}
                () = async { gone(&dropped).await; sleep(DROP_WAIT).await } => {}
            }
        };
        let (_, thread) =
            runtime_thread::spawn("onlyonce-filter", run).map_err(RedisOpenError::Thread)?;
        Ok(Self { queues, held: Some(held), thread: Mutex::new(Some(thread)) })
    }

    /// Whether there was room for the job.
    pub(super) fn send(&self, job: Job) -> bool {
        let queue = usize::from(job.id().as_bytes()[0]) % QUEUES;
        self.queues[queue].try_send(job).is_ok()
    }
}

impl Drop for FilterWrites {
    fn drop(&mut self) {
        self.queues.clear();
        self.held = None;
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An error means that the thread panicked: it has ended too.
        drop(thread.map(JoinHandle::join));
    }
}

async fn work<S: Maintain>(
    inner: &Inner<S>,
    mut jobs: mpsc::Receiver<Job>,
    dropped: watch::Receiver<()>,
) {
    while let Some(job) = jobs.recv().await {
        match job {
            Job::Settled(id) => unless_gone(&dropped, inner.keep_settled(id)).await,
            Job::Read(id, record, at) => unless_gone(&dropped, inner.keep(id, &record, at)).await,
            Job::Changed(id, mark, done) => {
                let is_gone = inner.filter.forget(id).await;
                // Unconfirmed, the mark is dropped as it is, and the entry stays stale.
                if let Some(mark) = mark.filter(|_| is_gone) {
                    mark.clear();
                }
                let _ = done.send(is_gone);
            }
        }
    }
}

async fn unless_gone(dropped: &watch::Receiver<()>, copy: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = gone(dropped) => {}
        () = copy => {}
    }
}

async fn gone(dropped: &watch::Receiver<()>) {
    // Nothing is ever sent: an error says that the handle was dropped.
    while dropped.clone().changed().await.is_ok() {}
}

impl<S: Maintain> Inner<S> {
    async fn keep_settled(&self, id: OperationId) {
        if !self.filter.is_up() {
            return;
        }
        let (read_at, authority) = (SystemClock.boot(), self.authority.identity());
        if let Ok(seen) = self.load_authority(id).await
            && let Some(record) = seen.record
            && let Some(authority) = self.still(authority)
        {
            self.keep(EntryId { authority, id }, &record, read_at).await;
        }
    }

    /// Without the authority's time nothing is copied: nobody could say for how long the copy may live.
    async fn keep(&self, id: EntryId, record: &Record, read_at: Duration) {
        match self.authority_time.now(self.clock.boot()) {
            Some(now) => self.filter.keep(id, record, read_at, now.latest).await,
            None => count(&self.filter.counters.dropped),
        }
    }
}

const QUEUES: usize = 16;
/// How long the deletions that wait may go on after the drop.
const DROP_WAIT: Duration = Duration::from_secs(1);
/// Jobs that wait in one queue; more are dropped.
const QUEUE_MAX: usize = 256;
