//! The maintenance connection: listings, sweeps, check values, and the mark that the records were moved.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Row};

use super::answer::{Answer, Found};
use super::columns::Param;
use super::connection::{NO_STANDBY, Reconnecting, bounded};
use super::sql_error::{SqlError, cause, unclear};
use super::statement::Statement;
use super::value::{Moment, Uuid};
use crate::clock::StoreTime;
use crate::record::{Record, StateKind, StateSet};
use crate::scope::OperationId;
use crate::store::{Cursor, Page, Scan, Swept};

pub(super) struct Maintenance {
    pub(super) connection: Reconnecting,
    /// Everything that expired before this was swept, but for rows that were locked.
    pub(super) swept_until: StoreTime,
}

impl Maintenance {
    /// Records that do not read are left out: their own look-up says so.
    pub(super) async fn scan(&mut self, query: Scan) -> Result<Page, SqlError> {
        let statement = match query.states {
            states if states == StateSet::of(&[StateKind::Running]) => Statement::ScanRunning,
            states if states == StateSet::of(&[StateKind::Unknown]) => Statement::ScanUnknown,
            _ => Statement::ScanAll,
        };
        let limit = query.limit.min(PAGE_ROWS_MAX);
        let first = query.after.map_or(Some(0), |Cursor(after)| after.checked_add(1));
        let rows_max = if first.is_some() { i64::try_from(limit).unwrap_or(0) } else { 0 };
        let first = Uuid(first.unwrap_or(u128::MAX).to_be_bytes());
        let params: [Param<'_>; 2] = [Box::new(first), Box::new(rows_max)];
        let rows = self.connection.query(statement, &params).await?;
        Ok(page(Answer::read(&rows)?, query.states, limit))
    }

    /// How many were deleted.
    async fn sweep_piece(&mut self, until: StoreTime, rows: usize) -> Result<usize, SqlError> {
        let rows = i64::try_from(rows).unwrap_or(0);
        let row = self.expired(Statement::Sweep, until, Some(rows)).await?;
        let reached: Option<Moment> = row.try_get("reached").map_err(unclear)?;
        if let Some(Moment(reached)) = reached {
            self.swept_until = reached;
        }
        let deleted: i64 = row.try_get("deleted").map_err(unclear)?;
        Ok(usize::try_from(deleted).unwrap_or(0))
    }

    async fn has_expired(&mut self, until: StoreTime) -> Result<bool, SqlError> {
        let row = self.expired(Statement::HasExpired, until, None).await?;
        row.try_get("has_expired").map_err(unclear)
    }

    /// The row that a statement about expired records answers with.
    async fn expired(
        &mut self,
        statement: Statement,
        until: StoreTime,
        rows: Option<i64>,
    ) -> Result<Row, SqlError> {
        let mut params: Vec<Param<'_>> =
            vec![Box::new(Moment(until)), Box::new(Moment(self.swept_until))];
        params.extend(rows.map(|rows| -> Param<'_> { Box::new(rows) }));
        let rows = self.connection.query(statement, &params).await?;
        rows.into_iter().next().ok_or(SqlError::Moved)
    }

    /// Runs what has a transaction of its own. If it fails, the transaction ends with the connection.
    pub(super) async fn transaction<T>(
        &mut self,
        run: impl AsyncFnOnce(&Client) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let connection = self.connection.ready().await?;
        let mut done = bounded(run(&connection.client)).await;
        if connection.take_warning() && done.is_ok() {
            done = Err(SqlError::Unsure(cause(NO_STANDBY)));
        }
        if done.is_err() {
            self.connection.hang_up();
        }
        done
    }
}

/// Deletes expired records in small pieces, each followed by a pause in proportion. Other calls get the connection
/// between two pieces.
pub(super) async fn sweep(
    maintenance: &Mutex<Maintenance>,
    until: StoreTime,
    limit: usize,
) -> Result<Swept, SqlError> {
    let end = Instant::now() + SWEEP_WAIT_MAX;
    let mut deleted = 0;
    while deleted < limit {
        let begun = Instant::now();
        let piece = (limit - deleted).min(SWEEP_ROWS);
        let mut locked = maintenance.lock().await;
        let gone = locked.sweep_piece(until, piece).await?;
        deleted += gone;
        if gone < piece {
            // The next sweep looks at the rows that were locked, too.
            locked.swept_until = START;
            return Ok(Swept { deleted, more: false });
        }
        drop(locked);
        if Instant::now() >= end {
            return Ok(Swept { deleted, more: true });
        }
        sleep(begun.elapsed() * SWEEP_REST).await;
    }
    let more = maintenance.lock().await.has_expired(until).await?;
    Ok(Swept { deleted, more })
}

/// The page of an answer that had `limit` rows at most.
fn page(answer: Answer, states: StateSet, limit: usize) -> Page {
    let last = answer.found.keys().max().filter(|_| limit > 0 && answer.found.len() == limit);
    let next = last.map(|id| Cursor(u128::from_be_bytes(*id.as_bytes())));
    let listed = |(id, found)| match found {
        Found::There(record) => record.ok().map(|record| (id, record)),
        Found::Written(_) => None,
    };
    let mut records: Vec<(OperationId, Record)> =
        answer.found.into_iter().filter_map(listed).collect();
    records.retain(|(_, record)| states.contains(record.state.kind()));
    records.sort_unstable_by_key(|(id, _)| *id);
    Page { records, next, now: answer.now }
}

/// Durably, and after every write that is under way: one that began before must not end after it.
pub(super) async fn mark_moved(client: &Client, schema: &str, to: &str) -> Result<(), SqlError> {
    let begin = format!(
        "BEGIN; SET LOCAL synchronous_commit = on; LOCK TABLE {schema}.record IN SHARE ROW EXCLUSIVE MODE"
    );
    let mark = format!("UPDATE {schema}.meta SET moved_to = $1 WHERE one = 1");
    client.batch_execute(&begin).await?;
    client.execute(&mark, &[&to]).await?;
    Ok(client.batch_execute("COMMIT").await?)
}

/// The statements of this connection.
pub(super) const STATEMENTS: &[Statement] = &[
    Statement::ScanRunning,
    Statement::ScanUnknown,
    Statement::ScanAll,
    Statement::Sweep,
    Statement::HasExpired,
];
/// A sweep that is lost with the server is made again, so that its commits need not wait for the disk.
pub(super) const SETUP: &str = "SET synchronous_commit = off";
/// Before everything that expires.
pub(super) const START: StoreTime = StoreTime::from_ms(0);
/// Records in a page.
const PAGE_ROWS_MAX: usize = 1_000;
/// Rows of one piece of a sweep: claims wait for no more than these.
const SWEEP_ROWS: usize = 30;
/// A sweep rests this many times as long as its last piece took.
const SWEEP_REST: u32 = 4;
/// How long one sweep may take: its caller waits.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(3);
