//! Expiry: a range delete at the old end of each class, a few hundred rows per batch of the writer.
//!
//! Running and unknown records that stand in the way move to the new end; nothing passes them, and
//! nothing deletes them. An unexpired record stops the range; expired ones close behind it are
//! deleted one by one.

use rusqlite::{Connection, params};

use crate::clock::StoreTime;
use crate::scope::OperationId;
use crate::store::sqlite::jobs::Reply;
use crate::store::sqlite::layout::columns::owner_crc;
use crate::store::sqlite::layout::meta::Class;
use crate::store::sqlite::layout::place::Place;
use crate::store::sqlite::layout::rows::{self, Damage, Routes};
use crate::store::sqlite::layout::schema::{COMPLETED, GONE, RELEASED, RUNNING, UNKNOWN};
use crate::store::sqlite::layout::statements::Sql;
use crate::store::sqlite::writer::batch::Batch;
use crate::store::sqlite::writer::member_error::{Trouble, classify};
use crate::store::{Fault, Swept};

/// A sweep under way: it goes on from batch to batch.
pub(crate) struct Sweep {
    reply: Reply<Swept>,
    left: usize,
    deleted: usize,
    /// When it was asked for. The clock may jump meanwhile, and nobody has looked at it since.
    until: StoreTime,
    /// Which class is being swept, as a place in the list of them.
    at: usize,
    /// Rows from here on came, or were carried, after the class was begun.
    end: Option<i64>,
}

/// One row at the old end, as the sweep sees it.
struct Old {
    row: i64,
    fate: Fate,
}

enum Fate {
    Gone,
    /// Expired; whether it has a response.
    Due(OperationId, bool),
    /// Running or unknown.
    Held(OperationId),
    /// Not expired.
    Fresh,
    /// Unreadable, but known by its id: kept as it is.
    Damaged(OperationId),
}

impl Sweep {
    pub(crate) fn new(limit: usize, until: StoreTime, reply: Reply<Swept>) -> Self {
        Self { reply, left: limit, deleted: 0, until, at: 0, end: None }
    }

    pub(crate) fn fail(self, fault: Fault) {
        drop(self.reply.send(Err(fault)));
    }

    pub(crate) fn answer(self, more: bool) {
        drop(self.reply.send(Ok(Swept { deleted: self.deleted, more })));
    }

    /// Takes over what a portion did, once it is committed. `Some`: it is over, and whether more had expired.
    pub(crate) fn advance(&mut self, portion: &Portion) -> Option<bool> {
        self.left -= portion.deleted;
        self.deleted += portion.deleted;
        if portion.class_done {
            self.at += 1;
            self.end = None;
        } else {
            self.end = portion.end;
        }
        portion.over
    }

    /// The next few hundred rows, inside `batch`.
    pub(crate) fn portion(&self, batch: &mut Batch<'_>) -> Result<Portion, Trouble> {
        let class = batch.meta.classes.get(self.at).copied();
        let Some(class) = class else {
            return Ok(Portion { over: Some(false), ..Portion::default() });
        };
        let end = self.end.unwrap_or(class.next);
        let all_held = batch.shared.view().held_rows(class.class) == class.next - class.first;
        if class.first >= end || all_held {
            return Ok(Portion { class_done: true, ..Portion::default() });
        }
        let window = window(batch.db, &class, end, batch.routes(), self.until)?;
        if self.left == 0 {
            let more = window.iter().any(Old::is_due);
            return Ok(Portion {
                over: more.then_some(true),
                class_done: true,
                ..Portion::default()
            });
        }
        remove(batch, &class, &window, self.left, end)
    }
}

/// What one batch did of a sweep.
#[derive(Default)]
pub(crate) struct Portion {
    deleted: usize,
    class_done: bool,
    end: Option<i64>,
    over: Option<bool>,
}

fn remove(
    batch: &mut Batch<'_>,
    class: &Class,
    window: &[Old],
    left: usize,
    end: i64,
) -> Result<Portion, Trouble> {
    let full = window.len() == SWEEP_ROWS;
    let cut = cut(window, left, full);
    let range = window[..cut].iter().position(|old| matches!(old.fate, Fate::Fresh)).unwrap_or(cut);
    if cut > 0 {
        batch.begin()?;
    }
    for old in &window[..range] {
        clear(batch, class.class, old)?;
    }
    for old in &window[range..cut] {
        bury(batch, class.class, old)?;
    }
    if let Some(last) = window[..range].last() {
        delete_before(batch, class.class, last.row + 1)?;
    }
    let deleted = window[..cut].iter().filter(|old| old.is_due()).count();
    let class_done = deleted < left && !(full && range == window.len());
    Ok(Portion { deleted, class_done, end: Some(end), over: None })
}

/// How much of the window to work on: up to the last row that can go, and no more than `left` of those.
/// A full window of held rows is worked on too, or nothing behind it would ever go.
fn cut(window: &[Old], left: usize, full: bool) -> usize {
    let mut due = 0;
    let mut cut = 0;
    for (at, old) in window.iter().enumerate() {
        due += usize::from(old.is_due());
        if due > left {
            return cut;
        }
        if matches!(old.fate, Fate::Due(..) | Fate::Gone) {
            cut = at + 1;
        }
    }
    let only_held = window.iter().all(|old| matches!(old.fate, Fate::Held(_) | Fate::Damaged(_)));
    if full && only_held { window.len() } else { cut }
}

/// Makes a row at the old end ready to be deleted with the range.
fn clear(batch: &mut Batch<'_>, class: u8, old: &Old) -> Result<(), Trouble> {
    let place = Place { class, row: old.row };
    match old.fate {
        Fate::Gone | Fate::Fresh => Ok(()),
        Fate::Due(id, responded) => {
            if responded {
                rows::forget_response(batch.db, place).map_err(classify)?;
            }
            forget(batch, id, place);
            Ok(())
        }
        Fate::Held(id) => {
            let look = batch.current(&id)?;
            if look.place != Some(place) {
                return Err(damaged(place));
            }
            batch.carry(id, class, look.record.as_ref())
        }
        Fate::Damaged(id) => {
            if batch.place(&id) != Some(place) {
                return Err(damaged(place));
            }
            let next = batch.meta.class(class).map_or(1, |class| class.next);
            let mut statement = batch.db.prepare_cached(&Sql::of(class).carry).map_err(classify)?;
            statement.execute(params![old.row, next]).map_err(classify)?;
            batch.carry(id, class, None)
        }
    }
}

/// Deletes an expired record behind one that is not.
fn bury(batch: &mut Batch<'_>, class: u8, old: &Old) -> Result<(), Trouble> {
    if let Fate::Due(id, responded) = old.fate {
        let place = Place { class, row: old.row };
        rows::bury(batch.db, place, id, responded).map_err(classify)?;
        forget(batch, id, place);
    }
    Ok(())
}

/// Only if memory means this very row.
fn forget(batch: &mut Batch<'_>, id: OperationId, place: Place) {
    if batch.place(&id) == Some(place) {
        batch.forget(id);
    }
}

fn delete_before(batch: &mut Batch<'_>, class: u8, first: i64) -> Result<(), Trouble> {
    let mut statement = batch.db.prepare_cached(&Sql::of(class).delete_before).map_err(classify)?;
    statement.execute([first]).map_err(classify)?;
    if let Some(class) = batch.meta.class_mut(class) {
        class.first = first;
    }
    batch.meta_changed = true;
    Ok(())
}

fn window(
    db: &Connection,
    class: &Class,
    end: i64,
    routes: &Routes,
    now: StoreTime,
) -> Result<Vec<Old>, Trouble> {
    let limit = (end - class.first).min(SWEEP_ROWS as i64);
    let mut statement = db.prepare_cached(&Sql::of(class.class).window).map_err(Trouble::Whole)?;
    let mut found = statement.query(params![class.first, limit]).map_err(Trouble::Whole)?;
    let mut window = Vec::with_capacity(SWEEP_ROWS);
    while let Some(row) = found.next().map_err(classify)? {
        let number = class.first + window.len() as i64;
        let place = Place { class: class.class, row: number };
        if row.get(crate::store::sqlite::layout::columns::COLUMN_COUNT) != Ok(number) {
            return Err(damaged(place));
        }
        let fate = fate(row, routes, now).ok_or_else(|| damaged(place))?;
        window.push(Old { row: number, fate });
    }
    Ok(window)
}

/// `None` if not even its id can be trusted.
fn fate(row: &rusqlite::Row<'_>, routes: &Routes, now: StoreTime) -> Option<Fate> {
    let Ok((columns, _)) = rows::checked(row, routes) else {
        return owner(row).map(Fate::Damaged);
    };
    let id = OperationId::from_bytes(*columns.id);
    Some(match columns.state {
        GONE => Fate::Gone,
        RUNNING | UNKNOWN => Fate::Held(id),
        COMPLETED | RELEASED if columns.at <= now.as_ms() => {
            Fate::Due(id, columns.state == COMPLETED)
        }
        _ => Fate::Fresh,
    })
}

/// Whose row it is, if that part of it is sound.
fn owner(row: &rusqlite::Row<'_>) -> Option<OperationId> {
    let (id, state): ([u8; 16], i64) = (row.get(0).ok()?, row.get(1).ok()?);
    let crc: Vec<u8> = row.get(2).ok()?;
    crc.starts_with(&owner_crc(&id, state)).then(|| OperationId::from_bytes(id))
}

fn damaged(place: Place) -> Trouble {
    Trouble::Alone(Fault::NotDone(Damage::new(place, "its owner does not read").into()))
}

impl Old {
    fn is_due(&self) -> bool {
        matches!(self.fate, Fate::Due(..))
    }
}

/// Rows per batch: claims wait for no more than these.
const SWEEP_ROWS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: OperationId = OperationId::from_bytes([1; 16]);

    fn old(fates: &str) -> Vec<Old> {
        let fate = |letter| match letter {
            'g' => Fate::Gone,
            'd' => Fate::Due(ID, true),
            'h' => Fate::Held(ID),
            'x' => Fate::Damaged(ID),
            _ => Fate::Fresh,
        };
        let fates = fates.chars().map(fate);
        fates.zip(1..).map(|(fate, row)| Old { row, fate }).collect()
    }

    #[test]
    fn a_window_is_cut_after_the_last_row_that_can_go() {
        assert_eq!(cut(&old("ddhdhh"), 9, false), 4);
        assert_eq!(cut(&old("ddhdhh"), 2, false), 2);
        assert_eq!(cut(&old("fdg"), 9, false), 3);
        assert_eq!(cut(&old("hhh"), 9, false), 0);
        assert_eq!(cut(&old("hxh"), 9, true), 3);
        assert_eq!(cut(&old("hfh"), 9, true), 0);
    }
}
