//! The housekeeper: listings ([`super::listing`]), sweeps, and the time that all nodes agree on, on a connection of
//! their own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

use super::check_value::Checking;
use super::inbox::Inbox;
use super::job::{Chore, Reply};
use super::link::{Line, bounded};
use super::passes::Passes;
use super::round::MOVED;
use super::row;
use super::shared::Shared;
use super::trouble::{Cause, Trouble};
use super::value::Values;
use crate::store::time::{Told, Witness};
use crate::store::{BoxError, Swept};

/// Works until its queue is closed and empty.
pub(super) struct Housekeeper {
    pub(super) line: Line,
    pub(super) chores: Inbox<Chore>,
    pub(super) shared: Arc<Shared>,
    /// The schema's name, quoted.
    pub(super) schema: String,
    pub(super) passes: Passes,
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
            Chore::CheckValue(checking, reply) => {
                let kept = self.check_value(&checking).await;
                let _ = reply.send(kept.map_err(|trouble| trouble.fault()));
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
        let _ = self.line.ready().await;
        let (from, early) = self.passes.to_tell(self.line.number()).unzip();
        let early = Values(early.unwrap_or_default());
        let params: [&(dyn ToSql + Sync); 5] = [&jumped, &plausible, &trusts, &from, &early];
        let told = self.tell_of(known, BEAT, &params).await;
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

    async fn check_value(&mut self, checking: &Checking) -> Result<Option<String>, Trouble> {
        let client = &self.line.ready().await?.client;
        let kept = bounded(checking.run(client, &self.schema)).await;
        if kept.is_err() {
            // Its transaction ends with it.
            self.line.hang_up();
        }
        kept
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

/// The statements of this line, in the order in which it prepares them.
pub(super) const SCAN_RUNNING: usize = 0;
pub(super) const SCAN_UNKNOWN: usize = 1;
pub(super) const SCAN_ALL: usize = 2;
const SWEEP: usize = 3;
const MORE: usize = 4;
pub(super) const HORIZON: usize = 5;
pub(super) const MOVE_UP: usize = 6;
const BEAT: usize = 7;
const HOLD: usize = 8;

/// How often the highest time is kept for those who start later.
const BEAT_EVERY: Duration = Duration::from_secs(5);
const BEAT_PAUSE: Duration = Duration::from_millis(200);
/// Rows of one piece of a sweep: claims wait for no more than these.
const SWEEP_ROWS: usize = 30;
/// A sweep rests this many times as long as its last piece took.
const SWEEP_REST: u32 = 4;
/// How long one sweep may take: its caller waits.
const SWEEP_WAIT_MAX: Duration = Duration::from_secs(3);
/// Chores that are seen to between two pieces.
const WAITING_MAX: usize = 16;
