//! Writes to the filter, in the background: a few bounded queues, each worked off in order.
//!
//! All writes of one record go through the same queue. So this process cannot write a copy that was read before a
//! change of the record after it has deleted the entry because of that change.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::Inner;
use super::filter::count;
use crate::clock::{Clock, SystemClock};
use crate::record::Record;
use crate::runtime_thread;
use crate::scope::OperationId;
use crate::store::Store;
use crate::store::redis::RedisOpenError;

/// The queues, and the thread that works them off. Dropped, it ends the thread and waits for it.
pub(super) struct FilterWrites {
    queues: Vec<mpsc::Sender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(super) enum Job {
    /// The record was settled: read it from the authority, and copy it to Redis.
    Settled(OperationId),
    /// The record was read, when the authority was asked at that time of the system's boot clock: copy it to Redis.
    Read(OperationId, Box<Record>, Duration),
    /// The record was changed: delete its entry, and tell whether Redis has confirmed that.
    Changed(OperationId, oneshot::Sender<bool>),
}

impl Job {
    const fn id(&self) -> OperationId {
        match self {
            Self::Settled(id) | Self::Read(id, ..) | Self::Changed(id, _) => *id,
        }
    }
}

impl FilterWrites {
    pub(super) fn start<S: Store>(inner: &Arc<Inner<S>>) -> Result<Self, RedisOpenError> {
        let (queues, jobs): (Vec<_>, Vec<_>) =
            (0..QUEUES).map(|_| mpsc::channel(QUEUE_MAX)).unzip();
        let inner = inner.clone();
        let run = || async move {
            join_all(jobs.into_iter().map(|jobs| work(&inner, jobs))).await;
        };
        let (_, thread) =
            runtime_thread::spawn("onlyonce-filter", run).map_err(RedisOpenError::Thread)?;
        Ok(Self { queues, thread: Mutex::new(Some(thread)) })
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
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // An error means that the thread panicked: it has ended too.
        drop(thread.map(JoinHandle::join));
    }
}

async fn work<S: Store>(inner: &Inner<S>, mut jobs: mpsc::Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        match job {
            Job::Settled(id) => inner.keep_settled(id).await,
            Job::Read(id, record, read_at) => inner.keep(id, &record, read_at).await,
            Job::Changed(id, done) => {
                // A caller who no longer waits leaves the entry marked as stale.
                let _ = done.send(inner.filter.forget(id).await);
            }
        }
    }
}

impl<S: Store> Inner<S> {
    async fn keep_settled(&self, id: OperationId) {
        if !self.filter.is_up() {
            return;
        }
        let read_at = SystemClock.boot();
        if let Ok(seen) = self.load_authority(id).await
            && let Some(record) = seen.record
        {
            self.keep(id, &record, read_at).await;
        }
    }

    /// Without the authority's time nothing is copied: nobody could say for how long the copy may live.
    async fn keep(&self, id: OperationId, record: &Record, read_at: Duration) {
        match self.authority_time.now(self.clock.boot()) {
            Some(now) => self.filter.keep(id, record, read_at, now.latest).await,
            None => count(&self.filter.counters.dropped),
        }
    }
}

const QUEUES: usize = 16;
/// Jobs that wait in one queue; more are dropped.
const QUEUE_MAX: usize = 256;
