//! The limits of one process: how much work, memory and waiting it takes on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limits of one [`Once`](crate::Once). Past a limit a request is refused with 503 before any claim, or a waiter
/// with 409: there is no unbounded queue.
///
/// ```
/// use onlyonce::Limits;
///
/// let limits = Limits::default().with_executing_max(500);
/// # let _ = limits;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Operations under way; 10,000.
    pub executing_max: usize,
    /// Request bodies held, in bytes; 256 MiB.
    pub bodies_bytes_max: usize,
    /// Answers above 64 KiB that are being read and stored, in bytes; 64 MiB. Past it the next answer waits.
    pub answers_bytes_max: usize,
    /// Callers that wait for the answer of another request; 10,000.
    pub waiters_max: usize,
    /// Callers that wait for one key; 1,000.
    pub waiters_per_key_max: usize,
    /// Callers of one principal that wait; 2,000.
    pub waiters_per_principal_max: usize,
    /// Answers that the store did not take yet, in bytes; 64 MiB. Past it the outcome of the oldest becomes unknown.
    pub unsettled_bytes_max: usize,
    /// Completed answers kept in memory, in bytes; 64 MiB. 0 turns the cache off.
    pub cache_bytes_max: u64,
    /// How often expired records are deleted; every 15 minutes.
    pub sweep_every: Duration,
    /// How many expired records are deleted at a time; 5,000.
    pub sweep_rows: usize,
}

impl Limits {
    /// Operations under way. Default: 10,000. Past it requests are refused with 503.
    #[must_use]
    pub fn with_executing_max(self, executing_max: usize) -> Self {
        Self { executing_max, ..self }
    }

    /// Request bodies held, in bytes. Default: 256 MiB. Past it requests are refused with 503.
    #[must_use]
    pub fn with_bodies_bytes_max(self, bodies_bytes_max: usize) -> Self {
        Self { bodies_bytes_max, ..self }
    }

    /// Answers above 64 KiB that are being read and stored, in bytes. Default: 64 MiB. An answer that waits too long
    /// for its turn is streamed and not kept.
    #[must_use]
    pub fn with_answers_bytes_max(self, answers_bytes_max: usize) -> Self {
        Self { answers_bytes_max, ..self }
    }

    /// Callers that wait: in all, for one key, and from one principal. Default: 10,000, 1,000 and 2,000. Past it a
    /// duplicate gets 409 at once.
    #[must_use]
    pub fn with_waiters(self, in_all: usize, per_key: usize, per_principal: usize) -> Self {
        Self {
            waiters_max: in_all,
            waiters_per_key_max: per_key,
            waiters_per_principal_max: per_principal,
            ..self
        }
    }

    /// Answers that the store did not take yet, in bytes. Default: 64 MiB. A low limit makes outcomes unknown while the
    /// store is down.
    #[must_use]
    pub fn with_unsettled_bytes_max(self, unsettled_bytes_max: usize) -> Self {
        Self { unsettled_bytes_max, ..self }
    }

    /// Completed answers kept in memory, in bytes. Default: 64 MiB; 0 turns the cache off, and every retry asks the
    /// store.
    #[must_use]
    pub fn with_cache_bytes_max(self, cache_bytes_max: u64) -> Self {
        Self { cache_bytes_max, ..self }
    }

    /// How often expired records are deleted, and how many at a time. Default: every 15 minutes, 5,000. Large batches
    /// hold up the requests of a store with one writer.
    #[must_use]
    pub fn with_sweep(self, every: Duration, rows: usize) -> Self {
        Self { sweep_every: every, sweep_rows: rows, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            executing_max: 10_000,
            bodies_bytes_max: 256 * MIB,
            answers_bytes_max: 64 * MIB,
            waiters_max: 10_000,
            waiters_per_key_max: 1_000,
            waiters_per_principal_max: 2_000,
            unsettled_bytes_max: 64 * MIB,
            cache_bytes_max: 64 * MIB as u64,
            sweep_every: Duration::from_secs(15 * 60),
            sweep_rows: 5_000,
        }
    }
}

const MIB: usize = 1024 * 1024;

/// The permits that are left of the limits.
#[derive(Debug)]
pub(crate) struct Room {
    executing: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    answers_bytes_max: usize,
}

impl Room {
    pub(crate) fn new(limits: &Limits) -> Self {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            executing: places(limits.executing_max),
            bodies: places(limits.bodies_bytes_max),
            answers: places(limits.answers_bytes_max),
            answers_bytes_max: limits.answers_bytes_max,
        }
    }

    /// A permit for one operation; `None` if all are taken.
    pub(crate) fn operation(&self) -> Option<OwnedSemaphorePermit> {
        self.executing.clone().try_acquire_owned().ok()
    }

    /// Waits for a permit for the whole of a large answer. Taken once per answer: answers that held a part and waited
    /// for more could wait for each other for ever.
    pub(crate) async fn answer(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes.min(self.answers_bytes_max)).unwrap_or(u32::MAX);
        self.answers.clone().acquire_many_owned(bytes).await.ok()
    }

    /// Takes a permit for `bytes` more of a body; false if the limit is reached.
    pub(crate) fn grow(&self, body: &mut BodyRoom, bytes: usize) -> bool {
        let permit = u32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.bodies.clone().try_acquire_many_owned(bytes).ok());
        let Some(permit) = permit else { return false };
        match &mut body.0 {
            Some(held) => held.merge(permit),
            None => body.0 = Some(permit),
        }
        true
    }
}

/// The memory permit of one body; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct BodyRoom(Option<OwnedSemaphorePermit>);
