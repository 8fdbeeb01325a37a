//! The state that callers and the three threads of a store share.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use event_listener::Event;
use rusqlite::Connection;

use super::SqliteOptions;
use super::index::Index;
use super::jobs::{ReadJob, WriteJob};
use super::layout::rows::unavailable;
use super::queue::{Queue, Refusal};
use super::time::Time;
use crate::record::Record;
use crate::store::audit::AuditOptions;
use crate::store::wake::Wakers;
use crate::store::{Fault, Seen, StoreError};

pub(super) struct Shared {
    index: RwLock<Index>,
    pub(super) time: Time,
    /// How the audit trail is kept; `None` if none is.
    pub(super) audit: Option<AuditOptions>,
    pub(super) wakers: Wakers,
    pub(super) jobs: Queue<WriteJob>,
    pub(super) reads: Queue<ReadJob>,
    /// Requests for a checkpoint; at most one waits.
    pub(super) checkpoints: Queue<()>,
    /// The connections of the other two threads. After an I/O error the writer drops them.
    pub(super) reader: Mutex<Option<Connection>>,
    pub(super) checkpointer: Mutex<Option<Connection>>,
    /// The checkpointer has ended its part of a checkpoint, and the writer may finish it.
    pub(super) checkpointed: AtomicBool,
    /// The checkpointer met an I/O error.
    pub(super) io_failed: AtomicBool,
    status: AtomicU8,
    /// Notified when the writer thread has ended.
    pub(super) closed: Event,
    #[cfg(test)]
    pub(super) faults: super::faults::Faults,
}

/// Whether the store takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Up,
    /// After an I/O error, until the file is reopened.
    Down,
    /// The file was deleted or replaced. Only a new open helps.
    Replaced,
    /// As `Down`, and the WAL is gone or empty. It helps to put it back.
    LogLost,
    Closed,
}

impl Shared {
    pub(super) fn new(index: Index, time: Time, options: &SqliteOptions) -> Arc<Self> {
        let queue_max = options.queue_max;
        Arc::new(Self {
            index: RwLock::new(index),
            time,
            audit: options.audit,
            wakers: Wakers::default(),
            jobs: Queue::new(queue_max),
            reads: Queue::new(queue_max),
            checkpoints: Queue::new(1),
            reader: Mutex::new(None),
            checkpointer: Mutex::new(None),
            checkpointed: AtomicBool::new(false),
            io_failed: AtomicBool::new(false),
            status: AtomicU8::new(Status::Down as u8),
            closed: Event::new(),
            #[cfg(test)]
            faults: super::faults::Faults::default(),
        })
    }

    pub(super) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> Status {
        match self.status.load(Ordering::Acquire) {
            0 => Status::Up,
            1 => Status::Down,
            2 => Status::Replaced,
            3 => Status::LogLost,
            _ => Status::Closed,
        }
    }

    pub(super) fn set_status(&self, status: Status) {
        self.status.store(status as u8, Ordering::Release);
    }

    /// Refuses a call unless the store is up.
    pub(super) fn require_up(&self) -> Result<(), Fault> {
        match self.status() {
            Status::Up => Ok(()),
            Status::Closed => Err(Fault::NotDone(StoreError::Closed)),
            status => Err(Fault::NotDone(status.error())),
        }
    }

    /// `record` with the time of the store.
    pub(super) fn seen(&self, record: Option<Record>, mine: bool) -> Seen {
        Seen { record, mine, now: self.time.now() }
    }

    /// Refuses new calls. The threads end once their queues are empty.
    pub(super) fn close(&self) {
        self.jobs.close();
        self.reads.close();
        self.checkpoints.close();
    }
}

impl Status {
    pub(super) fn error(self) -> StoreError {
        match self {
            Self::Up | Self::Closed => StoreError::Closed,
            Self::Down => unavailable(DISK_FAILED),
            Self::Replaced => unavailable(REPLACED),
            Self::LogLost => unavailable(LOG_LOST),
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::NotDone(match refusal {
            Refusal::Full => StoreError::Busy,
            Refusal::Closed => StoreError::Closed,
        })
    }
}

/// Locks although another thread may have panicked: the connection is not half changed by that.
pub(super) fn lock(slot: &Mutex<Option<Connection>>) -> MutexGuard<'_, Option<Connection>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

const DISK_FAILED: &str = "the disk failed; the store is being opened again";
const REPLACED: &str = "the store file or its log was deleted or replaced while it was open; start again, and follow what the \
                        store says then";
const LOG_LOST: &str = "the log of the store file (-wal) is gone or empty; put it back";
