//! The sweep: deletes expired rows at the old end of each TTL class, up to 256 rows per batch of the writer.
//!
//! 1. Rows are appended in the order of their claims, so expired rows collect at the old end: one range delete
//!    removes them.
//! 2. A running or unknown record is pinned: it never expires. If it is among the expired rows, it is copied to the
//!    new end of its table first, with the same revision, and so survives the range delete.
//! 3. A record that has not expired ends the range. Expired rows behind it, among the rows that were read, are marked
//!    gone one by one.
//! 4. A row that cannot be decoded is moved like a pinned one: its key must stay an error and not become absent.

use rusqlite::params;

use crate::clock::StoreTime;
use crate::planted::{Planted, planted};
use crate::scope::{OperationId, Principal};
use crate::store::audit::{About, Note};
use crate::store::sqlite::jobs::Reply;
use crate::store::sqlite::layout::meta::ClassRows;
use crate::store::sqlite::layout::place::Place;
use crate::store::sqlite::layout::routes::Routes;
use crate::store::sqlite::layout::rows::{self, Damage};
use crate::store::sqlite::layout::schema::{COMPLETED, GONE, RELEASED, RUNNING, UNKNOWN};
use crate::store::sqlite::layout::statements::Statements;
use crate::store::sqlite::writer::batch::Batch;
use crate::store::sqlite::writer::job_error::{JobError, classify};
use crate::store::{Fault, Swept};

/// A sweep that has not ended yet: each batch of the writer runs one step of it.
pub(crate) struct Sweep {
    reply: Reply<Swept>,
    left: usize,
    deleted: usize,
    /// Records that expire at or before this time are deleted. It is the trusted time that the caller gave, not the
    /// clock of the store, which may be wrong.
    until: StoreTime,
    /// The class that is being swept: its position in `Meta::classes`.
    class_at: usize,
    /// The next row of the class when its sweep began. Rows from here on are newer, or were moved there by the sweep.
    end: Option<i64>,
}

/// A row at the old end.
struct OldRow {
    row: i64,
    fate: Fate,
    /// What the audit trail is told if it has expired.
    note: Option<Note>,
}

/// What the sweep does with a row.
enum Fate {
    /// Deleted: the record is gone already.
    Gone,
    /// Deleted, with its response if the flag is set.
    Expired(OperationId, bool),
    /// Moved to the new end: running or unknown.
    Pinned(OperationId),
    /// Left where it is.
    Unexpired,
    /// Moved to the new end as it is: it cannot be decoded, but its id can be trusted.
    Damaged(OperationId),
}

impl Sweep {
    pub(crate) fn new(limit: usize, until: StoreTime, reply: Reply<Swept>) -> Self {
        Self { reply, left: limit, deleted: 0, until, class_at: 0, end: None }
    }

    pub(crate) fn fail(self, fault: Fault) {
        drop(self.reply.send(Err(fault)));
    }

    pub(crate) fn answer(self, more: bool) {
        drop(self.reply.send(Ok(Swept { deleted: self.deleted, more })));
    }

    /// Counts what `step` did, once it is committed. `Some` when the sweep has ended: whether more records had expired.
    pub(crate) fn advance(&mut self, step: &SweepStep) -> Option<bool> {
        self.left -= step.deleted;
        self.deleted += step.deleted;
        if step.class_done {
            self.class_at += 1;
            self.end = None;
        } else {
            self.end = step.end;
        }
        step.over
    }

    /// Works on the next rows, in the transaction of `batch`.
    pub(crate) fn step(&self, batch: &mut Batch<'_>) -> Result<SweepStep, JobError> {
        let class = batch.meta.classes.get(self.class_at).copied();
        let Some(class) = class else {
            return Ok(SweepStep { over: Some(false), ..SweepStep::default() });
        };
        let end = self.end.unwrap_or(class.next);
        let all_pinned = batch.shared.index().pinned_rows(class.class) == class.next - class.first;
        if class.first >= end || all_pinned {
            return Ok(SweepStep { class_done: true, ..SweepStep::default() });
        }
        let window = window(batch, &class, end, self.until)?;
        if self.left == 0 {
            let more = window.iter().any(OldRow::is_expired);
            return Ok(SweepStep {
                over: more.then_some(true),
                class_done: true,
                ..SweepStep::default()
            });
        }
        remove(batch, &class, &window, self.left, end)
    }
}

/// What one step of a sweep did.
#[derive(Default)]
pub(crate) struct SweepStep {
    deleted: usize,
    class_done: bool,
    end: Option<i64>,
    over: Option<bool>,
}

fn remove(
    batch: &mut Batch<'_>,
    class: &ClassRows,
    window: &[OldRow],
    left: usize,
    end: i64,
) -> Result<SweepStep, JobError> {
    let full = window.len() == SWEEP_ROWS;
    let cut = cut(window, left, full);
    let range =
        window[..cut].iter().position(|old| matches!(old.fate, Fate::Unexpired)).unwrap_or(cut);
    if cut > 0 {
        batch.begin()?;
    }
    for old in &window[..range] {
        clear(batch, class.class, old)?;
    }
    for old in &window[range..cut] {
        mark_expired_gone(batch, class.class, old)?;
    }
    if let Some(last) = window[..range].last() {
        delete_before(batch, class.class, last.row + 1)?;
    }
    let deleted = window[..cut].iter().filter(|old| old.is_expired()).count();
    let class_done = deleted < left && !(full && range == window.len());
    Ok(SweepStep { deleted, class_done, end: Some(end), over: None })
}

/// How many rows of the window to work on: up to the last one that can be deleted, with at most `left` expired ones.
/// A full window of pinned rows is moved whole: else the sweep would never get past it.
fn cut(window: &[OldRow], left: usize, full: bool) -> usize {
    let mut due = 0;
    let mut cut = 0;
    for (at, old) in window.iter().enumerate() {
        due += usize::from(old.is_expired());
        if due > left {
            return cut;
        }
        if matches!(old.fate, Fate::Expired(..) | Fate::Gone) {
            cut = at + 1;
        }
    }
    let only_pinned =
        window.iter().all(|old| matches!(old.fate, Fate::Pinned(_) | Fate::Damaged(_)));
    if full && only_pinned { window.len() } else { cut }
}

/// Prepares a row for the range delete: drops its response and its id, or moves its record to the new end.
fn clear(batch: &mut Batch<'_>, class: u8, old: &OldRow) -> Result<(), JobError> {
    let place = Place { class, row: old.row };
    match old.fate {
        Fate::Gone | Fate::Unexpired => Ok(()),
        Fate::Expired(id, responded) => {
            if responded {
                rows::delete_response(batch.db, place).map_err(classify)?;
            }
            forget(batch, id, place, old.note.as_ref())
        }
        Fate::Pinned(id) => {
            let lookup = batch.lookup(&id)?;
            if lookup.place != Some(place) {
                return Err(damaged(place));
            }
            batch.move_to_end(id, class, lookup.record.as_ref())
        }
        Fate::Damaged(id) => {
            if batch.place(&id) != Some(place) {
                return Err(damaged(place));
            }
            let next = batch.meta.class(class).map_or(1, |class| class.next);
            let mut statement =
                batch.db.prepare_cached(&Statements::of(class).copy).map_err(classify)?;
            statement.execute(params![old.row, next]).map_err(classify)?;
            batch.move_to_end(id, class, None)
        }
    }
}

/// Marks an expired record gone that lies behind an unexpired one: the range delete cannot reach it.
fn mark_expired_gone(batch: &mut Batch<'_>, class: u8, old: &OldRow) -> Result<(), JobError> {
    if let Fate::Expired(id, responded) = old.fate {
        let place = Place { class, row: old.row };
        rows::mark_gone(batch.db, place, id, responded).map_err(classify)?;
        forget(batch, id, place, old.note.as_ref())?;
    }
    Ok(())
}

/// Removes the id from the index, if the index means this very row.
fn forget(
    batch: &mut Batch<'_>,
    id: OperationId,
    place: Place,
    note: Option<&Note>,
) -> Result<(), JobError> {
    if batch.place(&id) == Some(place) {
        batch.forget(id);
        batch.note(batch.shared.time.now(), note)?;
    }
    Ok(())
}

fn delete_before(batch: &mut Batch<'_>, class: u8, first: i64) -> Result<(), JobError> {
    let mut statement =
        batch.db.prepare_cached(&Statements::of(class).delete_before).map_err(classify)?;
    statement.execute([first]).map_err(classify)?;
    if let Some(class) = batch.meta.class_mut(class) {
        class.first = first;
    }
    batch.meta_changed = true;
    Ok(())
}

fn window(
    batch: &Batch<'_>,
    class: &ClassRows,
    end: i64,
    now: StoreTime,
) -> Result<Vec<OldRow>, JobError> {
    let limit = (end - class.first).min(SWEEP_ROWS as i64);
    let statement = batch.db.prepare_cached(&Statements::of(class.class).oldest);
    let mut statement = statement.map_err(JobError::Transaction)?;
    let mut found = statement.query(params![class.first, limit]).map_err(JobError::Transaction)?;
    let mut window = Vec::with_capacity(SWEEP_ROWS);
    while let Some(row) = found.next().map_err(classify)? {
        let number = class.first + window.len() as i64;
        let place = Place { class: class.class, row: number };
        if row.get(crate::store::sqlite::layout::columns::COLUMN_COUNT) != Ok(number) {
            return Err(damaged(place));
        }
        let fate = fate(row, batch.routes, now).ok_or_else(|| damaged(place))?;
        let is_noted = batch.chain.is_some() && matches!(fate, Fate::Expired(..));
        let note = is_noted.then(|| expired(row, batch.routes)).flatten();
        window.push(OldRow { row: number, fate, note });
    }
    Ok(window)
}

/// `None` if not even the id of the row can be trusted.
fn fate(row: &rusqlite::Row<'_>, routes: &Routes, now: StoreTime) -> Option<Fate> {
    let Ok((columns, _)) = rows::checked(row, routes) else {
        return rows::trusted_id(row, 0).map(|(id, _)| Fate::Damaged(id));
    };
    let id = OperationId::from_bytes(*columns.id);
    Some(match columns.state {
        GONE => Fate::Gone,
        RUNNING | UNKNOWN if planted(Planted::SweepIgnoresState) => Fate::Expired(id, false),
        RUNNING | UNKNOWN => Fate::Pinned(id),
        COMPLETED | RELEASED if columns.at <= now.as_ms() => {
            Fate::Expired(id, columns.state == COMPLETED)
        }
        _ => Fate::Unexpired,
    })
}

/// What the audit trail is told of an expired row.
fn expired(row: &rusqlite::Row<'_>, routes: &Routes) -> Option<Note> {
    let (columns, route) = rows::checked(row, routes).ok()?;
    let about = About {
        route,
        principal: Some(Principal::from_bytes(*columns.principal)),
        attempt: u32::try_from(columns.attempt).ok(),
        ..About::default()
    };
    Some(Note::expired_by(OperationId::from_bytes(*columns.id), about))
}

fn damaged(place: Place) -> JobError {
    JobError::Job(Fault::NotDone(Damage::new(place, "its id does not read").into()))
}

impl OldRow {
    fn is_expired(&self) -> bool {
        matches!(self.fate, Fate::Expired(..))
    }
}

/// Rows per step: a claim in the same batch waits for no more than these.
const SWEEP_ROWS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: OperationId = OperationId::from_bytes([1; 16]);

    fn old(fates: &str) -> Vec<OldRow> {
        let fate = |letter| match letter {
            'g' => Fate::Gone,
            'e' => Fate::Expired(ID, true),
            'p' => Fate::Pinned(ID),
            'x' => Fate::Damaged(ID),
            _ => Fate::Unexpired,
        };
        let fates = fates.chars().map(fate);
        fates.zip(1..).map(|(fate, row)| OldRow { row, fate, note: None }).collect()
    }

    #[test]
    fn a_window_is_cut_after_the_last_row_that_can_go() {
        assert_eq!(cut(&old("eepepp"), 9, false), 4);
        assert_eq!(cut(&old("eepepp"), 2, false), 2);
        assert_eq!(cut(&old("ueg"), 9, false), 3);
        assert_eq!(cut(&old("ppp"), 9, false), 0);
        assert_eq!(cut(&old("pxp"), 9, true), 3);
        assert_eq!(cut(&old("pup"), 9, true), 0);
    }
}
