//! The parked messages of a SQLite file.

use std::path::Path;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rusqlite::{OptionalExtension, Row, params};
use uuid::Uuid;

use super::parked::{
    OutboxStatus, PAGE_ROWS_MAX, ParkedFilter, ParkedMessage, ParkedRows, RETRY_ROWS_MAX,
    TOPICS_MAX, TopicStatus, WithPayload,
};
use super::sqlite_file::{OutboxFile, OutboxFileError};
use super::sqlite_queue::count;
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::store::BoxError;

/// The operators' statements, on a thread.
#[derive(Debug)]
pub(super) struct SqliteParked {
    file: OutboxFile,
}

impl SqliteParked {
    pub(super) async fn open(path: &Path) -> Result<Self, OutboxFileError> {
        Ok(Self { file: OutboxFile::open(path).await? })
    }
}

impl ParkedRows for SqliteParked {
    fn list<'a>(
        &'a self,
        filter: ParkedFilter<'a>,
        after: i64,
    ) -> BoxFuture<'a, Result<Vec<ParkedMessage>, BoxError>> {
        let (topic, key) = (filter.topic.map(str::to_owned), filter.key.map(str::to_owned));
        let list = self.file.run(move |db| {
            let mut list = db.prepare_cached(LIST)?;
            let rows = list.query_map(params![after, topic, key, PAGE_ROWS_MAX], parked_message)?;
            rows.collect()
        });
        list.boxed()
    }

    fn find(&self, id: Uuid) -> BoxFuture<'_, Result<Option<WithPayload>, BoxError>> {
        let find = self.file.run(move |db| {
            let mut find = db.prepare_cached(FIND)?;
            find.query_row([id.to_string()], with_payload).optional()
        });
        find.boxed()
    }

    fn retry<'a>(
        &'a self,
        id: Option<Uuid>,
        filter: ParkedFilter<'a>,
    ) -> BoxFuture<'a, Result<usize, BoxError>> {
        let (topic, key) = (filter.topic.map(str::to_owned), filter.key.map(str::to_owned));
        let retry = self.file.run(move |db| {
            let id = id.map(|id| id.to_string());
            let now = SystemClock.wall().as_ms();
            db.prepare_cached(RETRY)?.execute(params![id, topic, key, RETRY_ROWS_MAX, now])
        });
        retry.boxed()
    }

    fn discard(&self, id: Uuid) -> BoxFuture<'_, Result<Option<String>, BoxError>> {
        let discard = self.file.run(move |db| {
            let mut discard = db.prepare_cached(DISCARD)?;
            discard.query_row([id.to_string()], |row| row.get(0)).optional()
        });
        discard.boxed()
    }

    fn status(&self) -> BoxFuture<'_, Result<OutboxStatus, BoxError>> {
        let status = self.file.run(|db| {
            let mut status = db.prepare_cached(STATUS)?;
            let now = SystemClock.wall().as_ms();
            let topics = status.query_map([TOPICS_MAX, now], topic_status)?;
            Ok(OutboxStatus { topics: topics.collect::<Result<_, _>>()? })
        });
        status.boxed()
    }
}

fn parked_message(row: &Row<'_>) -> rusqlite::Result<ParkedMessage> {
    Ok(ParkedMessage {
        id: row.get(0)?,
        position: row.get(1)?,
        topic: row.get(2)?,
        key: row.get(3)?,
        attempts: count(row, 4)?,
        error: row.get::<_, Option<String>>(5)?.unwrap_or_default(),
        created_at: StoreTime::from_ms(row.get(6)?),
        parked_at: StoreTime::from_ms(row.get(7)?),
    })
}

fn with_payload(row: &Row<'_>) -> rusqlite::Result<WithPayload> {
    Ok((parked_message(row)?, row.get(8)?))
}

fn topic_status(row: &Row<'_>) -> rusqlite::Result<TopicStatus> {
    Ok(TopicStatus::new(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

/// Parked messages after position ?1, of topic ?2 and key ?3 if they are given.
const LIST: &str = "\
    SELECT id, position, topic, key, attempts, error, created_at, parked_at FROM main.onlyonce_outbox
     WHERE parked_at IS NOT NULL AND position > ?1 AND (?2 IS NULL OR topic = ?2) AND (?3 IS NULL OR key = ?3)
     ORDER BY position LIMIT ?4";
const FIND: &str = "\
    SELECT id, position, topic, key, attempts, error, created_at, parked_at, payload FROM main.onlyonce_outbox
     WHERE id = ?1 AND parked_at IS NOT NULL";
/// Due again with all of their attempts: the message with id ?1, or those of topic ?2 and key ?3, if they are given.
const RETRY: &str = "\
    UPDATE main.onlyonce_outbox SET parked_at = NULL, due_at = ?5, attempts = 0
     WHERE position IN (
       SELECT position FROM main.onlyonce_outbox
        WHERE parked_at IS NOT NULL AND (?1 IS NULL OR id = ?1) AND (?2 IS NULL OR topic = ?2)
          AND (?3 IS NULL OR key = ?3)
        ORDER BY position LIMIT ?4)";
const DISCARD: &str =
    "DELETE FROM main.onlyonce_outbox WHERE id = ?1 AND parked_at IS NOT NULL RETURNING topic";
/// Of each topic: the messages that wait, the parked ones, and how long the oldest that waits does.
const STATUS: &str = "\
    SELECT topic, count(*) - count(parked_at), count(parked_at),
           ?2 - min(created_at) FILTER (WHERE parked_at IS NULL)
      FROM main.onlyonce_outbox GROUP BY topic ORDER BY topic LIMIT ?1";
