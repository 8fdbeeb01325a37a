//! The maintenance connection: listings, sweeps, check values, and the mark that the records were moved.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::answer::{Answer, Found};
use super::call::{MaintenanceCall, Reply};
use super::columns::Param;
use super::connection::{Reconnecting, bounded};
use super::queue::Queue;
use super::sql_error::{SqlError, moved, unclear};
use super::statement::Statement;
use super::value::{Moment, Uuid};
use crate::clock::StoreTime;
use crate::record::{Record, StateKind, StateSet};
use crate::scope::OperationId;
use crate::store::{Cursor, Page, Scan, Swept};

/// Works until its queue is closed and empty.
pub(super) struct Maintenance {
    connection: Reconnecting,
    calls: Queue<MaintenanceCall>,
    /// The schema's name, quoted.
    schema: String,
    /// Sweeps that wait for the one at hand.
    sweeps: VecDeque<Sweep>,
    /// Everything that expired before this was swept, but for rows that were locked.
    swept_until: StoreTime,
}

struct Sweep {
    until: StoreTime,
    limit: usize,
    reply: Reply<Swept>,
}

impl Maintenance {
    pub(super) fn new(
        connection: Reconnecting,
        calls: Queue<MaintenanceCall>,
        schema: String,
    ) -> Self {
        let (sweeps, swept_until) = (VecDeque::new(), START);
        Self { connection, calls, schema, sweeps, swept_until }
    }

    pub(super) async fn run(mut self) {
        loop {
            if let Some(Sweep { until, limit, reply }) = self.sweeps.pop_front() {
                let swept = self.sweep(until, limit).await;
                // A caller who no longer listens has dropped the call.
                let _ = reply.send(swept.map_err(|error| error.fault()));
                continue;
            }
            match self.calls.recv().await {
                Some(call) => self.answer(call).await,
                None => return,
            }
        }
    }

    async fn answer(&mut self, call: MaintenanceCall) {
        match call {
            MaintenanceCall::Scan(query, reply) => {
                let page = self.scan(&query).await;
                let _ = reply.send(page.map_err(|error| error.fault_of_read()));
            }
            MaintenanceCall::Sweep { until, limit, reply } => {
                self.sweeps.push_back(Sweep { until, limit, reply });
            }
            MaintenanceCall::CheckValue(check_value, reply) => {
                let schema = self.schema.clone();
                let kept = self.transaction(async |client| check_value.run(client, &schema).await);
                let _ = reply.send(kept.await.map_err(|error| error.fault()));
            }
            MaintenanceCall::MarkMoved(to, reply) => {
                let schema = self.schema.clone();
                let marked =
                    self.transaction(async |client| mark_moved(client, &schema, &to).await);
                let _ = reply.send(marked.await.map_err(|error| error.fault()));
            }
        }
    }

    /// Runs what has a transaction of its own. If it fails, the transaction ends with the connection.
    async fn transaction<T>(
        &mut self,
        run: impl AsyncFnOnce(&Client) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let connection = self.connection.ready().await?;
        let done = bounded(run(&connection.client)).await;
        if done.is_err() {
            self.connection.hang_up();
        }
        done
    }

    /// Records that do not read are left out: their own look-up says so.
    async fn scan(&mut self, query: &Scan) -> Result<Page, SqlError> {
        let statement = match query.states {
            states if states == StateSet::of(&[StateKind::Running]) => Statement::ScanRunning,
            states if states == StateSet::of(&[StateKind::Unknown]) => Statement::ScanUnknown,
            _ => Statement::ScanAll,
        };
        let limit = query.limit.min(PAGE_ROWS_MAX);
        let first = query.after.map_or(Some(0), |Cursor(after)| after.checked_add(1));
        let rows_max = if first.is_some() { i64::try_from(limit).unwrap_or(0) } else { 0 };
        let first = Uuid(first.unwrap_or(u128::MAX).to_be_bytes());
        let rows = self.connection.query(statement, &[Box::new(first), Box::new(rows_max)]).await?;
        Ok(page(Answer::read(&rows)?, query.states, limit))
    }

    /// In small pieces, each followed by a pause in proportion, and by the other calls that have queued.
    async fn sweep(&mut self, until: StoreTime, limit: usize) -> Result<Swept, SqlError> {
        let end = Instant::now() + SWEEP_WAIT_MAX;
        let mut deleted = 0;
        while deleted < limit {
            let begun = Instant::now();
            let piece = (limit - deleted).min(SWEEP_ROWS);
            let gone = self.sweep_piece(until, piece).await?;
            deleted += gone;
            if gone < piece {
                self.swept_until = START;
                return Ok(Swept { deleted, more: false });
            }
            if Instant::now() >= end {
                return Ok(Swept { deleted, more: true });
            }
            sleep(begun.elapsed() * SWEEP_REST).await;
            self.answer_waiting().await;
        }
        let more = self.has_expired(until).await?;
        Ok(Swept { deleted, more })
    }

    /// How many were deleted.
    async fn sweep_piece(&mut self, until: StoreTime, rows: usize) -> Result<usize, SqlError> {
        let (until, from) = (Moment(until), Moment(self.swept_until));
        let rows = i64::try_from(rows).unwrap_or(0);
        let params: [Param<'_>; 3] = [Box::new(until), Box::new(from), Box::new(rows)];
        let rows = self.connection.query(Statement::Sweep, &params).await?;
        let row = rows.first().ok_or_else(moved)?;
        let reached: Option<Moment> = row.try_get("reached").map_err(unclear)?;
        if let Some(Moment(reached)) = reached {
            self.swept_until = reached;
        }
        let deleted: i64 = row.try_get("deleted").map_err(unclear)?;
        Ok(usize::try_from(deleted).unwrap_or(0))
    }

    async fn has_expired(&mut self, until: StoreTime) -> Result<bool, SqlError> {
        let (until, from) = (Moment(until), Moment(self.swept_until));
        let params: [Param<'_>; 2] = [Box::new(until), Box::new(from)];
        let rows = self.connection.query(Statement::HasExpired, &params).await?;
        rows.first().ok_or_else(moved)?.try_get("has_expired").map_err(unclear)
    }

    async fn answer_waiting(&mut self) {
        for _ in 0..WAITING_MAX {
            let Some(call) = self.calls.try_recv() else { return };
            self.answer(call).await;
        }
    }
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
async fn mark_moved(client: &Client, schema: &str, to: &str) -> Result<(), SqlError> {
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
const START: StoreTime = StoreTime::from_ms(0);
/// Records in a page.
const PAGE_ROWS_MAX: usize = 1_000;
/// Rows of one piece of a sweep: claims wait for no more than these.
const SWEEP_ROWS: usize = 30;
/// A sweep rests this many times as long as its last piece took.
const SWEEP_REST: u32 = 4;
/// How long one sweep may take: its caller waits.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(3);
/// Calls that are answered between two pieces.
const WAITING_MAX: usize = 16;
