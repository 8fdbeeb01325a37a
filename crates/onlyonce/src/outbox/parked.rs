//! Messages that were refused too often, for operators.

use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::RelayOptions;
use crate::clock::StoreTime;
use crate::store::BoxError;
use crate::store::postgres::{PostgresOpenError, PreparedConnection};

/// The parked messages of a schema. Each of them keeps the later messages of its topic and key waiting, until it is retried
/// and shipped, or discarded.
#[derive(Debug)]
pub struct Parked {
    connection: Mutex<PreparedConnection>,
}

/// A message that was refused too often.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParkedMessage {
    /// The id with which it would have been shipped.
    pub id: String,
    /// Its topic.
    pub topic: String,
    /// Its key, whose later messages wait for it.
    pub key: Option<String>,
    /// What was to be shipped.
    pub payload: Vec<u8>,
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

/// Without the key and the payload: they belong in no log.
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
        let texts = [
            include_str!("sql/parked.sql"),
            include_str!("sql/retry.sql"),
            include_str!("sql/discard.sql"),
        ];
        let texts = texts.map(str::to_owned).into();
        let connection = PreparedConnection::open(url, options.schema.as_deref(), texts).await?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    /// The parked messages after a position, the oldest first: at most 100. The first page is after position 0.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn list(
        &self,
        filter: ParkedFilter<'_>,
        after: i64,
    ) -> Result<Vec<ParkedMessage>, OutboxError> {
        let ParkedFilter { topic, key } = filter;
        let rows = self.query(LIST, &[&after, &topic, &key, &PAGE_ROWS_MAX]).await?;
        rows.iter().map(ParkedMessage::read).collect()
    }

    /// Makes a message due again, with all of its attempts. `false` if there is no parked message with this id.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn retry(&self, id: &str) -> Result<bool, OutboxError> {
        let Ok(id) = Uuid::try_parse(id) else { return Ok(false) };
        let (topic, key) = (None::<&str>, None::<&str>);
        let rows = self.query(RETRY, &[&Some(id), &topic, &key, &1_i64]).await?;
        Ok(!rows.is_empty())
    }

    /// Makes the messages that match due again, at most 1,000 of them. Returns how many: call it again until there are none.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn retry_all(&self, filter: ParkedFilter<'_>) -> Result<usize, OutboxError> {
        let ParkedFilter { topic, key } = filter;
        let rows = self.query(RETRY, &[&None::<Uuid>, &topic, &key, &RETRY_ROWS_MAX]).await?;
        Ok(rows.len())
    }

    /// Deletes a parked message, which is then never shipped, and returns it: keep it. The later messages of its key are
    /// shipped after this. `None` if there is no parked message with this id.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn discard(&self, id: &str) -> Result<Option<ParkedMessage>, OutboxError> {
        let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
        let rows = self.query(DISCARD, &[&id]).await?;
        let discarded = rows.first().map(ParkedMessage::read).transpose()?;
        if let Some(ParkedMessage { id, topic, .. }) = &discarded {
            tracing::warn!(id, topic, "an operator discarded a message");
        }
        Ok(discarded)
    }

    async fn query(
        &self,
        statement: usize,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, OutboxError> {
        self.connection.lock().await.query(statement, params).await.map_err(OutboxError)
    }
}

impl ParkedMessage {
    fn read(row: &Row) -> Result<Self, OutboxError> {
        let read = || {
            Ok(Self {
                id: row.try_get::<_, Uuid>("id")?.to_string(),
                topic: row.try_get("topic")?,
                key: row.try_get("key")?,
                payload: row.try_get("payload")?,
                created_at: StoreTime::from_ms(row.try_get("created_ms")?),
                parked_at: StoreTime::from_ms(row.try_get("parked_ms")?),
                attempts: u32::try_from(row.try_get::<_, i32>("attempts")?)?,
                error: row.try_get::<_, Option<String>>("error")?.unwrap_or_default(),
                position: row.try_get("position")?,
            })
        };
        read().map_err(OutboxError)
    }
}

/// The numbers of the statements.
const LIST: usize = 0;
const RETRY: usize = 1;
const DISCARD: usize = 2;
const PAGE_ROWS_MAX: i64 = 100;
const RETRY_ROWS_MAX: i64 = 1_000;
