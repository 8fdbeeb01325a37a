//! The parked messages of a Postgres schema.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_postgres::Row;
use uuid::Uuid;

use super::RelayOptions;
use super::parked::{
    OutboxStatus, PAGE_ROWS_MAX, ParkedFilter, ParkedMessage, ParkedRows, RETRY_ROWS_MAX,
    TOPICS_MAX, TopicStatus, WithPayload,
};
use super::postgres_queue::{count, time};
use crate::store::BoxError;
use crate::store::postgres::{PostgresOpenError, PreparedConnection};

/// The operators' statements, on a connection.
#[derive(Debug)]
pub(super) struct PostgresParked {
    connection: Mutex<PreparedConnection>,
}

impl PostgresParked {
    pub(super) async fn open(url: &str, options: &RelayOptions) -> Result<Self, PostgresOpenError> {
        let texts = [
            include_str!("sql/parked.sql"),
            include_str!("sql/find.sql"),
            include_str!("sql/retry.sql"),
            include_str!("sql/discard.sql"),
            include_str!("sql/status.sql"),
        ];
        let texts = texts.map(str::to_owned).into();
        let connection =
            PreparedConnection::open_installed(url, options.schema.as_deref(), texts).await?;
        Ok(Self { connection: Mutex::new(connection) })
    }
}

impl ParkedRows for PostgresParked {
    fn list<'a>(
        &'a self,
        filter: ParkedFilter<'a>,
        after: i64,
    ) -> BoxFuture<'a, Result<Vec<ParkedMessage>, BoxError>> {
        let list = async move {
            let ParkedFilter { topic, key } = filter;
            let mut connection = self.connection.lock().await;
            let rows = connection.query(LIST, &[&after, &topic, &key, &PAGE_ROWS_MAX]).await?;
            rows.iter().map(parked_message).collect()
        };
        list.boxed()
    }

    fn find(&self, id: Uuid) -> BoxFuture<'_, Result<Option<WithPayload>, BoxError>> {
        let find = async move {
            let rows = self.connection.lock().await.query(FIND, &[&id]).await?;
            rows.first().map(with_payload).transpose()
        };
        find.boxed()
    }

    fn retry<'a>(
        &'a self,
        id: Option<Uuid>,
        filter: ParkedFilter<'a>,
    ) -> BoxFuture<'a, Result<usize, BoxError>> {
        let retry = async move {
            let ParkedFilter { topic, key } = filter;
            let mut connection = self.connection.lock().await;
            let rows = connection.query(RETRY, &[&id, &topic, &key, &RETRY_ROWS_MAX]).await?;
            Ok(rows.len())
        };
        retry.boxed()
    }

    fn discard(&self, id: Uuid) -> BoxFuture<'_, Result<Option<String>, BoxError>> {
        let discard = async move {
            let rows = self.connection.lock().await.query(DISCARD, &[&id]).await?;
            Ok(rows.first().map(|row| row.try_get("topic")).transpose()?)
        };
        discard.boxed()
    }

    fn status(&self) -> BoxFuture<'_, Result<OutboxStatus, BoxError>> {
        let status = async move {
            let rows = self.connection.lock().await.query(STATUS, &[&TOPICS_MAX]).await?;
            let topics = rows.iter().map(topic_status).collect::<Result<_, _>>()?;
            Ok(OutboxStatus { topics })
        };
        status.boxed()
    }
}

fn parked_message(row: &Row) -> Result<ParkedMessage, BoxError> {
    Ok(ParkedMessage {
        id: row.try_get::<_, Uuid>("id")?.to_string(),
        topic: row.try_get("topic")?,
        key: row.try_get("key")?,
        created_at: time(row, "created_ms")?,
        parked_at: time(row, "parked_ms")?,
        attempts: count(row, "attempts")?,
        error: row.try_get::<_, Option<String>>("error")?.unwrap_or_default(),
        position: row.try_get("position")?,
    })
}

fn with_payload(row: &Row) -> Result<WithPayload, BoxError> {
    Ok((parked_message(row)?, row.try_get("payload")?))
}

fn topic_status(row: &Row) -> Result<TopicStatus, BoxError> {
    Ok(TopicStatus::new(
        row.try_get("topic")?,
        row.try_get("waiting")?,
        row.try_get("parked")?,
        row.try_get("oldest_ms")?,
    ))
}

/// The numbers of the statements.
const LIST: usize = 0;
const FIND: usize = 1;
const RETRY: usize = 2;
const DISCARD: usize = 3;
const STATUS: usize = 4;
