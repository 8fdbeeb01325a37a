//! Listings (`Maintain::scan`): first the live records from the index, then the completed ones in the order of their rows.

use rusqlite::{Connection, params};

use crate::record::{Record, StateKind};
use crate::scope::OperationId;
use crate::store::sqlite::layout::columns::COLUMN_COUNT;
use crate::store::sqlite::layout::place::{CLASS_MAX, Place, Slot};
use crate::store::sqlite::layout::rows::{self, Found, unavailable};
use crate::store::sqlite::layout::statements::Statements;
use crate::store::sqlite::shared::Shared;
use crate::store::{Cursor, Fault, Page, Scan};

/// A page of live records from the index; `None` if the cursor is among the completed ones already.
pub(crate) fn live_page(shared: &Shared, query: &Scan) -> Option<Page> {
    let after = query.after.and_then(slot);
    if after.is_some_and(|after| after.kind == StateKind::Completed) {
        return None;
    }
    let limit = query.limit.min(PAGE_ROWS_MAX);
    let index = shared.index();
    let found = index.page(query.states, after, limit);
    let last = found.last().map(|(slot, _)| *slot);
    let is_full = found.len() == limit;
    let records = found.into_iter().map(|(_, live)| (live.id, live.record.clone()));
    let records: Vec<_> = records.collect();
    drop(index);
    let wants_completed = query.states.contains(StateKind::Completed);
    let next = match last {
        Some(last) if is_full => Some(cursor(last)),
        _ if wants_completed => Some(COMPLETED_FIRST),
        _ => None,
    };
    Some(Page { records, next, now: shared.time.now() })
}

/// A page of completed records. Damaged rows are left out; a load of their key reports them.
pub(crate) fn page(shared: &Shared, db: &Connection, query: &Scan) -> Result<Page, Fault> {
    let mut place = query.after.and_then(slot).map(|slot| slot.place);
    let mut records = Vec::new();
    let mut examined = 0;
    for class in classes(db)? {
        let after = place
            .filter(|place| place.class >= class)
            .map_or(0, |place| if place.class == class { place.row } else { i64::MAX });
        let room = (query.limit - records.len()).min(PAGE_ROWS_MAX - examined);
        let mut found = read_class(shared, db, Place { class, row: after }, room)?;
        examined += found.examined;
        records.append(&mut found.records);
        place = found.last.or(place);
        if found.examined >= room {
            let next = place.map(|place| cursor(Slot { kind: StateKind::Completed, place }));
            return Ok(finished(shared, records, next));
        }
    }
    Ok(finished(shared, records, None))
}

fn finished(shared: &Shared, records: Vec<(OperationId, Record)>, next: Option<Cursor>) -> Page {
    Page { records, next, now: shared.time.now() }
}

struct Part {
    records: Vec<(OperationId, Record)>,
    examined: usize,
    last: Option<Place>,
}

fn read_class(shared: &Shared, db: &Connection, after: Place, room: usize) -> Result<Part, Fault> {
    let failed = |error| Fault::NotDone(unavailable(error));
    let mut part = Part { records: Vec::new(), examined: 0, last: None };
    let mut statement = db.prepare_cached(&Statements::of(after.class).page).map_err(failed)?;
    let mut rows = statement.query(params![after.row, room as i64]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let number: i64 = row.get(COLUMN_COUNT + 3).map_err(failed)?;
        let place = Place { row: number, ..after };
        part.examined += 1;
        part.last = Some(place);
        if let Found::Record(id, record) = rows::decode(row, place, &shared.index().routes)
            && record.state.kind() == StateKind::Completed
        {
            part.records.push((id, *record));
        }
    }
    Ok(part)
}

/// The classes that have tables, in ascending order.
fn classes(db: &Connection) -> Result<Vec<u8>, Fault> {
    let failed = |error| Fault::NotDone(unavailable(error));
    let sql = "SELECT name FROM sqlite_schema WHERE name LIKE 'record_%'";
    let mut statement = db.prepare_cached(sql).map_err(failed)?;
    let names = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
    let mut classes = Vec::new();
    for name in names {
        let name = name.map_err(failed)?;
        classes.extend(name.strip_prefix("record_").and_then(|class| class.parse::<u8>().ok()));
    }
    classes.sort_unstable();
    Ok(classes)
}

fn cursor(slot: Slot) -> Cursor {
    Cursor(slot.to_bits().into())
}

fn slot(cursor: Cursor) -> Option<Slot> {
    let bits = u64::try_from(cursor.0).ok()?;
    if cursor == COMPLETED_FIRST {
        let place = Place { class: 0, row: 0 };
        return Some(Slot { kind: StateKind::Completed, place });
    }
    Slot::from_bits(bits).filter(|slot| slot.place.class <= CLASS_MAX)
}

/// The cursor before the first completed record.
const COMPLETED_FIRST: Cursor = Cursor((StateKind::Completed as u128) << 62);
/// The most rows that are read for one page. A page may have fewer records than asked for, and a cursor to go on.
const PAGE_ROWS_MAX: usize = 10_000;
