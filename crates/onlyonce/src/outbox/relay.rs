//! The relay: leases messages, sends them, and writes down what came of it.

use std::future::pending;
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::backoff::Backoff;
use super::counts::RelayCounts;
use super::options::{POLL_FIRST, RelayOptions};
use super::postgres_queue::PostgresQueue;
use super::queue::{NewlyParked, Queue};
use super::sending::{Outcome, Sending, Sent};
#[cfg(feature = "sqlite")]
use super::sqlite_file::OutboxFileError;
#[cfg(feature = "sqlite")]
use super::sqlite_queue::SqliteQueue;
use super::unlucky::Unlucky;
use super::{Message, Sink, SinkError};
use crate::store::BoxError;
use crate::store::postgres::PostgresOpenError;

/// Ships the messages of a database to a sink. Run as many as you like, in any process: they share the work.
///
/// Dropped while it runs, it stops at once; what it was sending is sent again when the leases are over.
#[derive(Debug)]
pub struct Relay<S> {
    options: RelayOptions,
    queue: Box<dyn Queue>,
    sending: Sending<S>,
    /// How many messages a lease may ask for.
    lease_rows_max: usize,
    /// What came of messages and is not written down yet. They count as being sent.
    outcomes: Vec<Outcome>,
    /// Nothing was found.
    idle: Backoff,
    /// The sink is unavailable.
    outage: Backoff,
    /// The database is.
    offline: Backoff,
    counts: RelayCounts,
    unlucky: Unlucky,
}

impl<S: Sink> Relay<S> {
    /// A relay for the database at `url`, with the options of [`RelayOptions::new`]. `url` is that of
    /// [`PostgresStore::open`](crate::store::postgres::PostgresStore::open).
    ///
    /// # Errors
    /// When the server cannot be reached, or is not one that keeps what it commits: see [`PostgresOpenError`].
    pub async fn open(url: &str, sink: S) -> Result<Self, PostgresOpenError> {
        Self::open_with(url, sink, RelayOptions::new()).await
    }

    /// The same with `options`.
    ///
    /// # Errors
    /// As [`Relay::open`].
    pub async fn open_with(
        url: &str,
        sink: S,
        options: RelayOptions,
    ) -> Result<Self, PostgresOpenError> {
        let queue = PostgresQueue::open(url, &options).await?;
        Ok(Self::over(Box::new(queue), sink, options))
    }

    /// A relay for the messages of a SQLite file, that [`SqliteTx::outbox`](crate::transaction::SqliteTx::outbox) adds, with
    /// the options of [`RelayOptions::new`]. It has a connection and a thread of its own. It may run in the process that
    /// writes the messages or in another one, on the same machine.
    ///
    /// # Errors
    /// When the file cannot be opened, or has not the tables: see [`OutboxFileError`].
    #[cfg(feature = "sqlite")]
    pub async fn open_sqlite(file: impl AsRef<Path>, sink: S) -> Result<Self, OutboxFileError> {
        Self::open_sqlite_with(file, sink, RelayOptions::new()).await
    }

    /// The same with `options`. A file has no schema.
    ///
    /// # Errors
    /// As [`Relay::open_sqlite`].
    #[cfg(feature = "sqlite")]
    pub async fn open_sqlite_with(
        file: impl AsRef<Path>,
        sink: S,
        options: RelayOptions,
    ) -> Result<Self, OutboxFileError> {
        let queue = SqliteQueue::open(file.as_ref()).await?;
        Ok(Self::over(Box::new(queue), sink, options))
    }

    fn over(queue: Box<dyn Queue>, sink: S, options: RelayOptions) -> Self {
        Self {
            queue,
            sending: Sending::new(sink),
            lease_rows_max: LEASE_ROWS_MAX,
            outcomes: Vec::new(),
            idle: Backoff::new(POLL_FIRST, options.poll_max),
            outage: Backoff::new(OUTAGE_FIRST, OUTAGE_MAX),
            offline: Backoff::new(OFFLINE_FIRST, OFFLINE_MAX),
            counts: RelayCounts::default(),
            unlucky: Unlucky::default(),
            options,
        }
    }

    /// What the relay does from now on, for metrics. Keep it before the relay runs.
    pub fn counts(&self) -> RelayCounts {
        self.counts.clone()
    }

    /// Ships messages for ever: also after an outage of the sink or the database.
    pub async fn run(self) {
        self.run_until(pending()).await;
    }

    /// Ships messages until `shutdown` ends. It takes no new ones then, and returns when those that are being sent are
    /// written down: within one lease.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let mut is_stopping = false;
        loop {
            self.settle().await;
            if is_stopping && self.in_flight() == 0 {
                return;
            }
            if !is_stopping {
                self.lease().await;
            }
            let wake_at = self.wake_at(is_stopping);
            tokio::select! {
                () = &mut shutdown, if !is_stopping => is_stopping = true,
                Some(outcome) = self.sending.next() => self.take(outcome),
                () = sleep_until(wake_at) => {}
            }
            while let Some(outcome) = self.sending.try_next() {
                self.take(outcome);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.sending.len() + self.outcomes.len()
    }

    /// How many messages may be leased now. In an outage, one: to see whether it is over.
    fn room(&self) -> usize {
        let room = self.options.in_flight_max.saturating_sub(self.in_flight());
        if self.outage.is_active() { room.min(1) } else { room }
    }

    /// When there is something to do although no send ends.
    fn wake_at(&self, is_stopping: bool) -> Instant {
        match (self.outcomes.is_empty(), is_stopping || self.room() == 0) {
            (false, _) => self.offline.until(),
            (true, true) => Instant::now() + self.options.lease,
            (true, false) => self.lease_at(),
        }
    }

    fn lease_at(&self) -> Instant {
        self.idle.until().max(self.outage.until()).max(self.offline.until())
    }

    async fn lease(&mut self) {
        let room = self.room();
        if room == 0 || Instant::now() < self.lease_at() {
            return;
        }
        let rows_max = room.min(self.lease_rows_max);
        let found = self.queue.lease(&self.options, rows_max).await;
        let Some(found) = self.noted(found) else {
            // Their payloads may have been too much for the time of one answer.
            self.lease_rows_max = (self.lease_rows_max / 2).max(1);
            return;
        };
        if found.leased.len() == self.lease_rows_max {
            self.lease_rows_max = (self.lease_rows_max + 1).min(LEASE_ROWS_MAX);
        }
        self.counts.note_age(&found);
        if found.is_idle {
            self.idle.pause();
        }
        if self.outage.is_active() && !found.leased.is_empty() {
            // The next look at the sink is after a longer pause, also if this one never ends.
            self.outage.pause();
        }
        for leased in found.leased {
            self.idle.reset();
            self.sending.start(leased, self.options.lease / 2);
        }
    }

    /// Takes what came of a message. One that was shipped proves that the sink is there, and may have uncovered the next of
    /// its key.
    fn take(&mut self, outcome: Outcome) {
        let outcome = self.blamed(outcome);
        match &outcome.sent {
            Sent::Shipped => {
                self.counts.add_shipped();
                self.outage.reset();
                self.idle.reset();
            }
            Sent::Failed(SinkError::Unavailable(error)) => {
                tracing::warn!(error = &**error, "the sink is unavailable");
                if !self.outage.is_active() {
                    self.counts.add_outage();
                }
                self.outage.pause();
            }
            // The sink has answered.
            Sent::Failed(SinkError::Refused(error)) => {
                let Message { id, topic, .. } = &*outcome.leased.message;
                tracing::warn!(error = &**error, %id, topic, "the sink refused a message");
                self.counts.add_refused();
                self.outage.reset();
            }
        }
        self.outcomes.push(outcome);
    }

    /// A message that finds the sink unavailable again and again, although the sink takes others, may be to blame itself.
    fn blamed(&mut self, outcome: Outcome) -> Outcome {
        let (id, Some(times_max)) = (outcome.leased.id, self.options.unavailable_max) else {
            return outcome;
        };
        match outcome.sent {
            Sent::Failed(SinkError::Unavailable(why)) => {
                let is_to_blame = self.unlucky.note(id, self.counts.shipped()) >= times_max;
                let error = match is_to_blame {
                    true => SinkError::Refused(why),
                    false => SinkError::Unavailable(why),
                };
                Outcome { sent: Sent::Failed(error), ..outcome }
            }
            Sent::Shipped => {
                self.unlucky.forget(id);
                outcome
            }
            Sent::Failed(_) => outcome,
        }
    }

    /// Writes down what came of messages. After the lease it is left to the relay that takes over.
    async fn settle(&mut self) {
        let lease = self.options.lease;
        self.outcomes.retain(|outcome| outcome.leased.asked_at.elapsed() < lease);
        if !self.outcomes.is_empty() && Instant::now() >= self.offline.until() {
            let settled = self.queue.settle(&mut self.outcomes, &self.options).await;
            for NewlyParked { id, topic } in self.noted(settled).into_iter().flatten() {
                tracing::error!(%id, topic, "a message was refused too often and is parked");
                self.counts.add_parked();
            }
        }
    }

    /// What the database answered; without an answer it is asked again after a pause.
    fn noted<T>(&mut self, answer: Result<T, BoxError>) -> Option<T> {
        match &answer {
            Ok(_) => self.offline.reset(),
            Err(error) => {
                tracing::warn!(
                    error = &**error as &dyn std::error::Error,
                    "the outbox's database did not answer"
                );
                self.offline.pause();
            }
        }
        answer.ok()
    }
}

/// Messages that a lease asks for if their payloads arrive in time.
const LEASE_ROWS_MAX: usize = 16;
/// Pauses of a relay whose sink is unavailable.
const OUTAGE_FIRST: Duration = Duration::from_millis(100);
const OUTAGE_MAX: Duration = Duration::from_secs(5);
/// Pauses between two tries to reach the database.
const OFFLINE_FIRST: Duration = Duration::from_millis(100);
const OFFLINE_MAX: Duration = Duration::from_secs(2);
