//! Messages that were refused too often, for operators.

#[cfg(feature = "sqlite")]
use std::path::Path;
use std::time::Duration;

use futures_util::future::BoxFuture;
use uuid::Uuid;

use super::RelayOptions;
use super::postgres_parked::PostgresParked;
#[cfg(feature = "sqlite")]
use super::sqlite_file::OutboxFileError;
#[cfg(feature = "sqlite")]
use super::sqlite_parked::SqliteParked;
use crate::clock::StoreTime;
use crate::store::BoxError;
use crate::store::postgres::PostgresOpenError;

/// The parked messages of a database. Each of them keeps the later messages of its topic and key waiting, until it is
/// retried and shipped, or discarded.
#[derive(Debug)]
pub struct Parked {
    rows: Box<dyn ParkedRows>,
}

/// A message that was refused too often. [`Parked::find`] has its payload.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParkedMessage {
    /// The id with which it would have been shipped.
    pub id: String,
    /// Its topic.
    pub topic: String,
    /// Its key, whose later messages wait for it.
    pub key: Option<String>,
    /// When it was added to its transaction.
    pub created_at: StoreTime,
    /// When it was refused for the last time.
    pub parked_at: StoreTime,
    /// How often it was refused.
    pub attempts: u32,
    /// Why it was refused the last time.
    pub error: String,
    /// Where it is in the list: the next page begins after this.
    pub position: i64,
}

/// Without the key: it belongs in no log.
impl std::fmt::Debug for ParkedMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ParkedMessage");
        shown.field("id", &self.id).field("topic", &self.topic).field("attempts", &self.attempts);
        shown.field("error", &self.error).finish_non_exhaustive()
    }
}

/// Which parked messages are meant: all, those of a topic, those of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParkedFilter<'a> {
    /// Of this topic.
    pub topic: Option<&'a str>,
    /// Of this key.
    pub key: Option<&'a str>,
}

/// What waits in an outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxStatus {
    /// Of each topic that has messages, in the order of their names: at most 1,000.
    pub topics: Vec<TopicStatus>,
}

/// What waits of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicStatus {
    /// The topic.
    pub topic: String,
    /// Messages that are not shipped and not parked: those that wait behind a parked one are among them.
    pub waiting: u64,
    /// Messages that are parked.
    pub parked: u64,
    /// How long ago the oldest message that waits was added, by the database's clock. `None` if none waits.
    pub oldest_age: Option<Duration>,
}

impl TopicStatus {
    pub(super) fn new(topic: String, waiting: i64, parked: i64, oldest_ms: Option<i64>) -> Self {
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        let oldest_age = oldest_ms.map(|ms| Duration::from_millis(number(ms)));
        Self { topic, waiting: number(waiting), parked: number(parked), oldest_age }
    }
}

/// The statements behind [`Parked`]. Each is harmless to repeat.
pub(super) trait ParkedRows: std::fmt::Debug + Send + Sync {
    /// Up to [`PAGE_ROWS_MAX`] after a position.
    fn list<'a>(
        &'a self,
        filter: ParkedFilter<'a>,
        after: i64,
    ) -> BoxFuture<'a, Result<Vec<ParkedMessage>, BoxError>>;

    /// The one with this id, and its payload.
    fn find(&self, id: Uuid) -> BoxFuture<'_, Result<Option<WithPayload>, BoxError>>;

    /// The one with this id, or up to [`RETRY_ROWS_MAX`] that match; how many there were.
    fn retry<'a>(
        &'a self,
        id: Option<Uuid>,
        filter: ParkedFilter<'a>,
    ) -> BoxFuture<'a, Result<usize, BoxError>>;

    /// Deletes the one with this id, and returns its topic.
    fn discard(&self, id: Uuid) -> BoxFuture<'_, Result<Option<String>, BoxError>>;

    fn status(&self) -> BoxFuture<'_, Result<OutboxStatus, BoxError>>;
}

/// A parked message and its payload.
pub(super) type WithPayload = (ParkedMessage, Vec<u8>);

/// The database did not answer. Call again: what was asked may have been done, and is not done twice.
#[derive(Debug, thiserror::Error)]
#[error("the outbox's database did not answer")]
pub struct OutboxError(#[source] BoxError);

impl Parked {
    /// Connects to the database at `url`.
    ///
    /// # Errors
    /// As [`Relay::open`](super::Relay::open).
    pub async fn open(url: &str) -> Result<Self, PostgresOpenError> {
        Self::open_with(url, &RelayOptions::new()).await
    }

    /// The same, in the schema of `options`.
    ///
    /// # Errors
    /// As [`Parked::open`].
    pub async fn open_with(url: &str, options: &RelayOptions) -> Result<Self, PostgresOpenError> {
        Ok(Self { rows: Box::new(PostgresParked::open(url, options).await?) })
    }

    /// The parked messages of a SQLite file. Relays of the file may run meanwhile.
    ///
    /// # Errors
    /// As [`Relay::open_sqlite`](super::Relay::open_sqlite).
    #[cfg(feature = "sqlite")]
    pub async fn open_sqlite(file: impl AsRef<Path>) -> Result<Self, OutboxFileError> {
        Ok(Self { rows: Box::new(SqliteParked::open(file.as_ref()).await?) })
    }

    /// The parked messages after a position, the oldest first: at most 100, without their payloads, which may be too much for
    /// one answer. The first page is after position 0.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn list(
        &self,
        filter: ParkedFilter<'_>,
        after: i64,
    ) -> Result<Vec<ParkedMessage>, OutboxError> {
        self.rows.list(filter, after).await.map_err(OutboxError)
    }

    /// The parked message with this id, and its payload. `None` if there is none.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn find(&self, id: &str) -> Result<Option<(ParkedMessage, Vec<u8>)>, OutboxError> {
        let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
        self.rows.find(id).await.map_err(OutboxError)
    }

    /// Makes a message due again, with all of its attempts. `false` if there is no parked message with this id.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn retry(&self, id: &str) -> Result<bool, OutboxError> {
        let Ok(id) = Uuid::try_parse(id) else { return Ok(false) };
        let retried = self.rows.retry(Some(id), ParkedFilter::default()).await;
        Ok(retried.map_err(OutboxError)? > 0)
    }

    /// Makes the messages that match due again, at most 1,000 of them. Returns how many: call it again until there are none.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn retry_all(&self, filter: ParkedFilter<'_>) -> Result<usize, OutboxError> {
        self.rows.retry(None, filter).await.map_err(OutboxError)
    }

    /// Deletes a parked message, which is then never shipped. [`find`](Self::find) it before, and keep its payload: there is no
    /// other copy after this. The later messages of its key are shipped. `false` if there is no parked message with this id.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn discard(&self, id: &str) -> Result<bool, OutboxError> {
        let Ok(uuid) = Uuid::try_parse(id) else { return Ok(false) };
        let discarded = self.rows.discard(uuid).await.map_err(OutboxError)?;
        if let Some(topic) = &discarded {
            tracing::warn!(id, topic, "an operator discarded a message");
        }
        Ok(discarded.is_some())
    }

    /// What waits in the outbox, for metrics and alerts. It reads all messages, so ask every minute, not every second.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn status(&self) -> Result<OutboxStatus, OutboxError> {
        self.rows.status().await.map_err(OutboxError)
    }
}

pub(super) const PAGE_ROWS_MAX: i64 = 100;
pub(super) const RETRY_ROWS_MAX: i64 = 1_000;
pub(super) const TOPICS_MAX: i64 = 1_000;
