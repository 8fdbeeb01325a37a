//! What is written to the filter in the background: some lanes, each in order, each bounded.
//!
//! All writes of one record go the same way. So a record that was read before another write of it cannot
//! come to the filter after that write has had its entry forgotten, not within this process.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::Inner;
use super::filter::count;
use crate::clock::{Clock, SystemClock};
use crate::record::Record;
use crate::scope::OperationId;
use crate::store::Store;
use crate::store::redis::OpenError;

/// The way to the thread. Dropped, it ends the thread and waits for it.
pub(super) struct Lanes {
    lanes: Vec<mpsc::Sender<Job>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(super) enum Job {
    /// It was settled: read it and keep it.
    Settled(OperationId),
    /// The authority was asked for it when the system's boot clock said so: keep it.
    Read(OperationId, Box<Record>, Duration),
    /// It was changed: forget it, and say whether Redis has.
    Changed(OperationId, oneshot::Sender<bool>),
}

impl Job {
    const fn id(&self) -> OperationId {
        match self {
            Self::Settled(id) | Self::Read(id, ..) | Self::Changed(id, _) => *id,
        }
    }
}

impl Lanes {
    pub(super) fn start<S: Store>(inner: &Arc<Inner<S>>) -> Result<Self, OpenError> {
        let (lanes, queues): (Vec<_>, Vec<_>) = (0..LANES).map(|_| mpsc::channel(LANE_MAX)).unzip();
        let inner = inner.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.expect("a runtime that has no drivers can be made");
            runtime.block_on(join_all(queues.into_iter().map(|queue| work(&inner, queue))));
        };
        let thread = std::thread::Builder::new().name("onlyonce-filter".to_owned()).spawn(run);
        let thread = Mutex::new(Some(thread.map_err(OpenError::Thread)?));
        Ok(Self { lanes, thread })
    }

    /// Whether there was room for it.
    pub(super) fn send(&self, job: Job) -> bool {
        let lane = usize::from(job.id().as_bytes()[0]) % LANES;
        self.lanes[lane].try_send(job).is_ok()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.lanes.clear();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // One that panicked has ended too.
        drop(thread.map(JoinHandle::join));
    }
}

async fn work<S: Store>(inner: &Inner<S>, mut queue: mpsc::Receiver<Job>) {
    while let Some(job) = queue.recv().await {
        match job {
            Job::Settled(id) => inner.keep_settled(id).await,
            Job::Read(id, record, read_at) => inner.keep(id, &record, read_at).await,
            Job::Changed(id, done) => {
                // Who no longer waits for it has been told nothing, and keeps distrusting the entry.
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

    /// What the authority's clock says is not known is not kept: nobody could say for how long.
    async fn keep(&self, id: OperationId, record: &Record, read_at: Duration) {
        match self.heard.now(self.clock.boot()) {
            Some(now) => self.filter.keep(id, record, read_at, now.latest).await,
            None => count(&self.filter.counters.dropped),
        }
    }
}

const LANES: usize = 16;
/// Writes that wait in one lane; more are dropped.
const LANE_MAX: usize = 256;
