//! The housekeeper: listings, sweeps, and the time that all nodes agree on, on a connection of their own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::inbox::Inbox;
use super::job::{Chore, Reply};
use super::link::{Line, bounded};
use super::round::MOVED;
use super::row::{self, Said, said};
use super::shared::Shared;
use super::trouble::{Cause, Trouble};
use super::value::{Uuid, Values};
use crate::record::{StateKind, StateSet};
use crate::store::time::{Told, Witness};
use crate::store::{BoxError, Cursor, Page, Scan, Swept};

/// Works until its queue is closed and empty.
pub(super) struct Housekeeper {
    pub(super) line: Line,
    pub(super) chores: Inbox<Chore>,
    pub(super) shared: Arc<Shared>,
    /// The schema's name, quoted.
    pub(super) schema: String,
    /// Sweeps that wait for the one at hand.
    pub(super) sweeps: VecDeque<(usize, Reply<Swept>)>,
}

impl Housekeeper {
    pub(super) async fn run(mut self) {
        let mut beat_at = Instant::now();
        loop {
            if let Some((limit, reply)) = self.sweeps.pop_front() {
                let swept = self.sweep(limit).await;
                // A caller who no longer listens has dropped the call.
                let _ = reply.send(swept.map_err(|trouble| trouble.fault()));
                continue;
            }
            tokio::select! {
                biased;
                () = self.shared.time.jumped.notified() => beat_at = self.beat().await,
                chore = self.chores.recv() => match chore {
                    Some(chore) => self.see_to(chore).await,
                    None => return,
                },
                () = tokio::time::sleep_until(beat_at) => beat_at = self.beat().await,
            }
        }
    }

    async fn see_to(&mut self, chore: Chore) {
        match chore {
            Chore::Scan(query, reply) => {
                let page = self.scan(&query).await;
                let _ = reply.send(page.map_err(|trouble| trouble.fault_of_read()));
            }
            Chore::Sweep(limit, reply) => self.sweeps.push_back((limit, reply)),
            Chore::HoldClock(held, reply) => {
                let told = self.tell(HOLD, &[&held]).await;
                let _ = reply.send(told.map(drop).map_err(|trouble| trouble.fault()));
            }
            Chore::MarkMoved(to, reply) => {
                let marked = self.mark_moved(&to).await;
                let _ = reply.send(marked.map_err(|trouble| trouble.fault()));
            }
        }
    }

    /// A statement that answers with the time and a number.
    async fn tell(
        &mut self,
        statement: usize,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<(Told, i64), Trouble> {
        let known = self.shared.time.known();
        self.tell_of(known, statement, more).await
    }

    /// The same, by what was known before.
    async fn tell_of(
        &mut self,
        known: (i64, i64),
        statement: usize,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<(Told, i64), Trouble> {
        let asked_at = self.shared.time.boot();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&known.0, &known.1];
        params.extend(more);
        let rows = self.line.query(statement, &params).await?;
        let [row] = &rows[..] else {
            return Err(Trouble::NotDone(Cause::new(MOVED)));
        };
        let unclear = |why: BoxError| Trouble::Unsure(Cause::new(why));
        let told = row::told(row, 0).map_err(unclear)?;
        let number = row.try_get(3).map_err(|error| unclear(error.into()))?;
        Ok((self.shared.time.tell(told, asked_at), number))
    }

    /// Keeps the highest time for those who start later, and tells them of a jump. When to do so again: soon,
    /// if nobody was told.
    async fn beat(&mut self) -> Instant {
        let Witness { known, jumped, plausible, trusts } = self.shared.time.witness();
        let told = self.tell_of(known, BEAT, &[&jumped, &plausible, &trusts]).await;
        Instant::now() + if told.is_err() && jumped { BEAT_PAUSE } else { BEAT_EVERY }
    }

    /// Durably, and after every write that is under way: one that began before must not end after it.
    async fn mark_moved(&mut self, to: &str) -> Result<(), Trouble> {
        let client = &self.line.ready().await?.client;
        let marked = bounded(mark_moved(client, &self.schema, to)).await;
        if marked.is_err() {
            // Its transaction ends with it.
            self.line.hang_up();
        }
        marked
    }

    async fn scan(&mut self, query: &Scan) -> Result<Page, Trouble> {
        let asked_at = self.shared.time.boot();
        let known = self.shared.time.known();
        let limit = query.limit.min(PAGE_ROWS_MAX);
        let (first, has_more) = first(query.after);
        let states = Values(if has_more { numbers(query.states) } else { Vec::new() });
        let rows_max = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut params: Vec<&(dyn ToSql + Sync)> =
            vec![&known.0, &known.1, &first, &states, &rows_max];
        if is_open(query.states) {
            let rows = self.line.query(SCAN_OPEN, &params).await?;
            return self.page(query, limit, rows, asked_at);
        }
        params.push(&LOOKED_MAX);
        let rows = self.line.query(SCAN_ALL, &params).await?;
        self.page(query, limit, rows, asked_at)
    }

    /// Rows that do not read are left out: their own look-up says so.
    fn page(
        &self,
        query: &Scan,
        limit: usize,
        rows: Vec<Row>,
        asked_at: Duration,
    ) -> Result<Page, Trouble> {
        let unclear = |why: BoxError| Trouble::NotDone(Cause::new(why));
        let (mut records, mut told, mut last, mut picked, mut looked) =
            (Vec::new(), None, None, 0, None);
        for row in &rows {
            match said(row).map_err(unclear)? {
                Said::Time(time) => told = Some(time),
                Said::There(id, record) => {
                    picked += 1;
                    last = last.max(Some(id));
                    records.extend(record.ok().map(|record| (id, record)));
                }
                Said::Wrote(id) => {
                    let count: i64 = row.try_get(1).map_err(|error| unclear(error.into()))?;
                    looked = (count == LOOKED_MAX).then_some(id);
                }
            }
        }
        records.sort_unstable_by_key(|(id, _)| *id);
        let next = if picked == limit && limit > 0 { last } else { looked };
        let next = next.map(|id| Cursor(u128::from_be_bytes(*id.as_bytes())));
        let next = next.filter(|_| query.limit > 0);
        let told = told.ok_or_else(|| Trouble::NotDone(Cause::new(MOVED)))?;
        let told = self.shared.time.tell(told, asked_at);
        Ok(Page { records, next, now: told.now, clock_held: told.clock_held })
    }

    /// In small pieces, each followed by a pause in proportion, and by whatever else has queued.
    async fn sweep(&mut self, limit: usize) -> Result<Swept, Trouble> {
        let end = Instant::now() + SWEEP_WAIT_MAX;
        let mut deleted = 0;
        while deleted < limit {
            let begun = Instant::now();
            let piece = i64::try_from((limit - deleted).min(SWEEP_ROWS)).unwrap_or(1);
            let gone = self.sweep_piece(SWEEP, Some(piece)).await?;
            deleted += usize::try_from(gone).unwrap_or_default();
            if gone < piece {
                break;
            }
            if Instant::now() >= end {
                return Ok(Swept { deleted, more: true });
            }
            sleep(begun.elapsed() * SWEEP_REST).await;
            self.see_to_waiting().await;
        }
        let more = deleted >= limit && self.sweep_piece(MORE, None).await? > 0;
        Ok(Swept { deleted, more })
    }

    async fn sweep_piece(&mut self, statement: usize, rows: Option<i64>) -> Result<i64, Trouble> {
        if self.shared.time.is_doubtful() {
            return Ok(0);
        }
        let plausible = self.shared.time.plausible();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&plausible];
        if let Some(rows) = &rows {
            params.push(rows);
        }
        Ok(self.tell(statement, &params).await?.1)
    }

    async fn see_to_waiting(&mut self) {
        for _ in 0..WAITING_MAX {
            let Some(chore) = self.chores.try_recv() else { return };
            self.see_to(chore).await;
        }
    }
}

async fn mark_moved(client: &Client, schema: &str, to: &str) -> Result<(), Trouble> {
    let begin = format!(
        "BEGIN; SET LOCAL synchronous_commit = on; LOCK TABLE {schema}.record IN SHARE ROW EXCLUSIVE MODE"
    );
    let mark = format!("UPDATE {schema}.meta SET moved_to = $1 WHERE one = 1");
    client.batch_execute(&begin).await?;
    client.execute(&mark, &[&to]).await?;
    Ok(client.batch_execute("COMMIT").await?)
}

/// The id that a page begins with, and whether there can be one after the last page.
fn first(after: Option<Cursor>) -> (Uuid, bool) {
    let first = after.map_or(Some(0), |Cursor(after)| after.checked_add(1));
    (Uuid(first.unwrap_or(u128::MAX).to_be_bytes()), first.is_some())
}

fn numbers(states: StateSet) -> Vec<i16> {
    let numbered = StateKind::ALL.iter().zip(1..);
    numbered.filter(|(kind, _)| states.contains(**kind)).map(|(_, number)| number).collect()
}

/// Whether only running and unknown records are asked for.
fn is_open(states: StateSet) -> bool {
    !states.contains(StateKind::Released) && !states.contains(StateKind::Completed)
}

/// The statements of this line, in the order in which it prepares them.
const SCAN_OPEN: usize = 0;
const SCAN_ALL: usize = 1;
const SWEEP: usize = 2;
const MORE: usize = 3;
const BEAT: usize = 4;
const HOLD: usize = 5;

/// How often the highest time is kept for those who start later.
const BEAT_EVERY: Duration = Duration::from_secs(5);
const BEAT_PAUSE: Duration = Duration::from_millis(200);
/// Rows of one page, and rows that are looked at for it.
const PAGE_ROWS_MAX: usize = 1_000;
const LOOKED_MAX: i64 = 10_000;
/// Rows of one piece of a sweep: claims wait for no more than these.
const SWEEP_ROWS: usize = 100;
/// A sweep rests this many times as long as its last piece took.
const SWEEP_REST: u32 = 4;
/// How long one sweep may take: its caller waits.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(3);
/// Chores that are seen to between two pieces.
const WAITING_MAX: usize = 16;
