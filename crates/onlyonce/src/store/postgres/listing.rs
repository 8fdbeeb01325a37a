//! The housekeeper's listings.

use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::house::{HORIZON, Housekeeper, MOVE_UP, SCAN_ALL, SCAN_RUNNING, SCAN_UNKNOWN};
use super::params::uuid;
use super::passes::{Bins, Horizon, Look, Met};
use super::round::MOVED;
use super::row::{Said, said};
use super::trouble::{Cause, Trouble};
use super::value::{Uuid, Values};
use crate::record::{Record, StateKind, StateSet};
use crate::scope::OperationId;
use crate::store::time::Told;
use crate::store::{BoxError, Cursor, Page, Scan};

impl Housekeeper {
    pub(super) async fn scan(&mut self, query: &Scan) -> Result<Page, Trouble> {
        let only = |kind| query.limit > 0 && query.states == StateSet::of(&[kind]);
        let limit = query.limit.min(PAGE_ROWS_MAX);
        if only(StateKind::Running) {
            self.scan_running(query.after, limit).await
        } else if only(StateKind::Unknown) {
            self.scan_unknown(query.after, limit).await
        } else {
            self.scan_all(query, limit).await
        }
    }

    /// By the bin in which they were begun, and by id within a bin.
    async fn scan_running(&mut self, after: Option<Cursor>, limit: usize) -> Result<Page, Trouble> {
        if after.is_none() {
            let horizon = self.horizon().await?;
            self.passes.begin(self.line.number(), horizon);
        }
        let Bins { first, last, early } = self.passes.bins();
        let (bin, id) = place(after.unwrap_or(Cursor(0)));
        let (rows_max, early) = (rows_max(limit), Values(early));
        let params: [&(dyn ToSql + Sync); 6] = [&bin, &id, &rows_max, &first, &last, &early];
        let listed = self.list(SCAN_RUNNING, &params).await?;
        let Some(mark) = listed.mark else {
            return Err(Trouble::NotDone(Cause::new(MOVED)));
        };
        let last = listed.met.iter().map(|met| (met.bin, met.id)).max();
        let next = match last {
            Some((bin, id)) if listed.met.len() == limit => Some(behind(bin, id)),
            _ => mark.edge.map(before),
        };
        let connection = self.line.number();
        let look = Look { connection, after, met: &listed.met, next_bin: mark.number, next };
        let far = self.passes.look(&look);
        if !far.is_empty() {
            // What cannot be moved now is met again.
            let _ = self.move_up(&far).await;
        }
        Ok(listed.page(next))
    }

    async fn horizon(&mut self) -> Result<Horizon, Trouble> {
        let rows = self.line.query(HORIZON, &[]).await?;
        let read = |row: &Row| -> Result<_, tokio_postgres::Error> {
            let told = (row.try_get(0)?, row.try_get(1)?);
            Ok(Horizon { told, next: row.try_get(2)?, open: row.try_get(3)? })
        };
        let row = rows.first().ok_or_else(|| Trouble::NotDone(Cause::new(MOVED)))?;
        read(row).map_err(|error| Trouble::NotDone(Cause::new(error)))
    }

    async fn move_up(&mut self, ids: &[OperationId]) -> Result<(), Trouble> {
        let ids = Values::of(ids, uuid);
        self.line.query(MOVE_UP, &[&ids]).await.map(drop)
    }

    async fn scan_unknown(&mut self, after: Option<Cursor>, limit: usize) -> Result<Page, Trouble> {
        let (first, has_more) = first(after);
        let rows_max = if has_more { rows_max(limit) } else { 0 };
        let listed = self.list(SCAN_UNKNOWN, &[&first, &rows_max]).await?;
        let next = listed.last().filter(|_| listed.met.len() == limit);
        Ok(listed.page(next.map(cursor)))
    }

    async fn scan_all(&mut self, query: &Scan, limit: usize) -> Result<Page, Trouble> {
        let (first, has_more) = first(query.after);
        let states = Values(if has_more { numbers(query.states) } else { Vec::new() });
        let rows_max = rows_max(limit);
        let listed = self.list(SCAN_ALL, &[&first, &states, &rows_max, &LOOKED_MAX]).await?;
        let looked = listed.mark.filter(|mark| mark.number == LOOKED_MAX).map(|mark| mark.id);
        let next = if listed.met.len() == limit { listed.last() } else { looked };
        Ok(listed.page(next.filter(|_| limit > 0).map(cursor)))
    }

    async fn list(
        &mut self,
        statement: usize,
        more: &[&(dyn ToSql + Sync)],
    ) -> Result<Listed, Trouble> {
        let asked_at = self.shared.time.boot();
        let known = self.shared.time.known();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&known.0, &known.1];
        params.extend(more);
        let rows = self.line.query(statement, &params).await?;
        let listed = Listed::read(&rows).map_err(|why| Trouble::NotDone(Cause::new(why)))?;
        Ok(Listed { told: self.shared.time.tell(listed.told, asked_at), ..listed })
    }
}

/// What a listing answered.
struct Listed {
    records: Vec<(OperationId, Record)>,
    met: Vec<Met>,
    told: Told,
    mark: Option<Mark>,
}

/// How far a statement has looked; what its numbers are, is its own to say.
#[derive(Clone, Copy)]
struct Mark {
    number: i64,
    id: OperationId,
    edge: Option<i64>,
}

impl Listed {
    /// Rows that do not read are left out: their own look-up says so.
    fn read(rows: &[Row]) -> Result<Self, BoxError> {
        let (mut records, mut met, mut told, mut mark) = (Vec::new(), Vec::new(), None, None);
        for row in rows {
            match said(row)? {
                Said::Time(time) => told = Some(time),
                Said::There(id, record) => {
                    let bin = row.try_get::<_, Option<i64>>(1)?.unwrap_or_default();
                    met.push(Met { bin, id, reads: record.is_ok() });
                    records.extend(record.ok().map(|record| (id, record)));
                }
                Said::Wrote(id) => {
                    mark = Some(Mark { number: row.try_get(1)?, id, edge: row.try_get(6)? });
                }
            }
        }
        records.sort_unstable_by_key(|(id, _)| *id);
        Ok(Self { records, met, told: told.ok_or(MOVED)?, mark })
    }

    fn last(&self) -> Option<OperationId> {
        self.met.iter().map(|met| met.id).max()
    }

    fn page(self, next: Option<Cursor>) -> Page {
        Page { records: self.records, next, now: self.told.now }
    }
}

/// The id that a page begins with, and whether there can be one after the last page.
fn first(after: Option<Cursor>) -> (Uuid, bool) {
    let first = after.map_or(Some(0), |Cursor(after)| after.checked_add(1));
    (Uuid(first.unwrap_or(u128::MAX).to_be_bytes()), first.is_some())
}

fn cursor(id: OperationId) -> Cursor {
    Cursor(number(id))
}

fn number(id: OperationId) -> u128 {
    u128::from_be_bytes(*id.as_bytes())
}

/// Where a page of running records begins: the bin, and an id in it. A cursor has no room for the end of an id; ids are
/// digests, and no two of one bin have the same beginning.
fn place(Cursor(cursor): Cursor) -> (i64, Uuid) {
    let bin = i64::try_from(cursor >> BIN_AT).unwrap_or(i64::MAX);
    (bin, Uuid((cursor << ID_CUT).to_be_bytes()))
}

/// The place before the first id of a bin.
fn before(bin: i64) -> Cursor {
    Cursor(u128::from(bin.unsigned_abs()) << BIN_AT)
}

/// The place behind an id.
fn behind(bin: i64, id: OperationId) -> Cursor {
    Cursor((before(bin).0 | number(id) >> ID_CUT).saturating_add(1))
}

fn numbers(states: StateSet) -> Vec<i16> {
    let numbered = StateKind::ALL.iter().zip(1..);
    numbered.filter(|(kind, _)| states.contains(**kind)).map(|(_, number)| number).collect()
}

fn rows_max(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Where the bin is in a cursor, and what it takes from the id.
const BIN_AT: u32 = 80;
const ID_CUT: u32 = 48;
/// Rows of one page, and rows that are looked at for it.
const PAGE_ROWS_MAX: usize = 1_000;
const LOOKED_MAX: i64 = 10_000;
