//! The relay: leases messages, sends them, and writes down what came of it.

use std::future::pending;
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::backoff::Backoff;
use super::counts::RelayCounts;
use super::health::{Health, Judged};
use super::leasing::LEASE_ROWS_MAX;
use super::options::{POLL_FIRST, RelayOptions};
use super::postgres_queue::PostgresQueue;
use super::queue::{Leased, NewlyParked, Queue, Settled, Verdict, Walk};
use super::sending::{Outcome, Sending};
#[cfg(feature = "sqlite")]
use super::sqlite_file::OutboxFileError;
#[cfg(feature = "sqlite")]
use super::sqlite_queue::SqliteQueue;
use super::{Message, Sink, SinkError};
use crate::store::BoxError;
use crate::store::postgres::PostgresOpenError;

/// Ships the messages of a database to a sink. Run as many as you like, in any process: they share the work.
///
/// Dropped while it runs, it stops at once; what it was sending is sent again when the leases are over.
#[derive(Debug)]
pub struct Relay<S> {
    pub(super) options: RelayOptions,
    pub(super) queue: Box<dyn Queue>,
    pub(super) sending: Sending<S>,
    /// How many messages a lease may ask for.
    pub(super) lease_rows_max: usize,
    /// Where the look at all lanes is.
    pub(super) walk: Walk,
    /// What came of messages and is not written down yet. They count as being sent.
    settled: Vec<Settled>,
    /// Nothing was found.
    pub(super) idle: Backoff,
    /// The database is unavailable.
    pub(super) offline: Backoff,
    pub(super) counts: RelayCounts,
    pub(super) health: Health,
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
            walk: Walk::default(),
            settled: Vec::new(),
            idle: Backoff::new(POLL_FIRST, options.poll_max),
            offline: Backoff::new(OFFLINE_FIRST, OFFLINE_MAX),
            counts: RelayCounts::default(),
            health: Health::new(options.unavailable_max),
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
        self.sending.len() + self.settled.len()
    }

    /// How many messages may be leased now.
    pub(super) fn room(&self) -> usize {
        self.options.in_flight_max.saturating_sub(self.in_flight())
    }

    /// When there is something to do although no send ends.
    fn wake_at(&self, is_stopping: bool) -> Instant {
        match (self.settled.is_empty(), is_stopping || self.room() == 0) {
            (false, _) => self.offline.until(),
            (true, true) => Instant::now() + self.options.lease,
            (true, false) => self.lease_at(),
        }
    }

    /// Takes what came of a message. One that was shipped may have uncovered the next of its key.
    fn take(&mut self, Outcome { leased, sent }: Outcome) {
        let settled = match sent {
            Ok(()) => {
                self.counts.add_shipped();
                self.health.shipped(&leased);
                self.idle.reset();
                Settled { leased, verdict: Verdict::Shipped, error: None }
            }
            Err(error) => {
                let (verdict, error) = (self.judged(&leased, &error), Some(error.text()));
                Settled { leased, verdict, error }
            }
        };
        self.settled.push(settled);
    }

    /// What a failure means, and tells it.
    fn judged(&mut self, leased: &Leased, error: &SinkError) -> Verdict {
        let Message { id, topic, .. } = &*leased.message;
        match error {
            SinkError::Unavailable(error) => {
                tracing::warn!(error = &**error, %id, topic, "the sink is unavailable");
            }
            SinkError::Refused(error) => {
                tracing::warn!(error = &**error, %id, topic, "the sink refused a message");
            }
        }
        let Judged { verdict, begins_outage } = self.health.failed(leased, error.is_refusal());
        if error.is_refusal() || verdict == Verdict::Refused {
            self.counts.add_refused();
        }
        if begins_outage {
            self.counts.add_outage();
            tracing::warn!(
                topic,
                "the sink is away for a topic: it is only probed, and no refusal is counted"
            );
        }
        verdict
    }

    /// Writes down what came of messages. After the lease it is left to the relay that takes over.
    async fn settle(&mut self) {
        let lease = self.options.lease;
        self.settled.retain(|settled| settled.leased.asked_at.elapsed() < lease);
        if !self.settled.is_empty() && Instant::now() >= self.offline.until() {
            let settled = self.queue.settle(&mut self.settled, &self.options).await;
            for NewlyParked { id, topic } in self.noted(settled).into_iter().flatten() {
                tracing::error!(%id, topic, "a message was refused too often and is parked");
                self.counts.add_parked();
            }
        }
    }

    /// What the database answered; without an answer it is asked again after a pause.
    pub(super) fn noted<T>(&mut self, answer: Result<T, BoxError>) -> Option<T> {
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

/// Pauses between two tries to reach the database.
const OFFLINE_FIRST: Duration = Duration::from_millis(100);
const OFFLINE_MAX: Duration = Duration::from_secs(2);
