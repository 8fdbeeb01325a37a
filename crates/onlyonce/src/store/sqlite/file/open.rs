//! From a file to a store: it is checked, scanned once, and what a dead process left is made unknown.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;

use crate::record::{Record, State, Token};
use crate::scope::OperationId;
use crate::store::sqlite::error::OpenError;
use crate::store::sqlite::file::connection;
use crate::store::sqlite::file::ownership::Owned;
use crate::store::sqlite::file::wal_check;
use crate::store::sqlite::index::View;
use crate::store::sqlite::layout::columns::owner_crc;
use crate::store::sqlite::layout::meta::{Class, Meta};
use crate::store::sqlite::layout::place::Place;
use crate::store::sqlite::layout::rows::{self, Found, Routes};
use crate::store::sqlite::layout::schema::{self, COMPLETED, GONE};
use crate::store::sqlite::layout::statements::Sql;
use crate::store::sqlite::time::Time;

/// A file that was opened.
pub(crate) struct Opened {
    pub(crate) db: Connection,
    pub(crate) meta: Meta,
    pub(crate) view: View,
}

/// Makes the file if there never was one, and looks at its log before the engine does.
pub(crate) fn ensure(owned: &Owned) -> Result<(), OpenError> {
    if !owned.inspect()? {
        let generation = *Token::random().as_bytes();
        owned.create(|new| {
            connection::create(new, |db| {
                let transaction = db.unchecked_transaction()?;
                db.execute_batch(schema::META)?;
                db.execute_batch(schema::ROUTE)?;
                db.execute_batch(schema::CHECK_VALUE)?;
                Meta::new(generation).write(db)?;
                transaction.commit()
            })
        })?;
    }
    owned.remember()?;
    match wal_check::is_damaged(&owned.wal()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(OpenError::damaged(owned.path(), "its log is damaged")),
        Err(error) => Err(OpenError::io(owned.path(), error)),
    }
}

/// Opens the file and reads what memory must know of it. Nothing that an earlier process may have
/// failed to make durable is left in the log.
pub(crate) fn open(path: &Path) -> Result<Opened, OpenError> {
    let db = connection::writable(path)?;
    let meta = check(&db, path)?;
    let flushed = db.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE);
    flushed.map_err(|error| OpenError::engine(path, error))?;
    let (meta, view) = scan(&db, path, meta)?;
    Ok(Opened { db, meta, view })
}

/// Whether the file is ours and whole, as far as its own word goes.
fn check(db: &Connection, path: &Path) -> Result<Meta, OpenError> {
    let failed = |error| OpenError::engine(path, error);
    let format = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    schema::check_format(path, format)?;
    let meta = Meta::read(db).map_err(failed)?;
    let meta = meta.ok_or_else(|| OpenError::damaged(path, "its meta row is wrong"))?;
    if let Some(to) = &meta.moved_to {
        return Err(OpenError::Moved { path: path.to_owned(), to: to.clone() });
    }
    let classes: Vec<_> = meta.classes.iter().map(|class| class.class).collect();
    match schema::differs(db, &classes).map_err(failed)? {
        Some(table) => {
            Err(OpenError::damaged(path, format!("{table} is not defined as it should be")))
        }
        None => Ok(meta),
    }
}

/// What a dead process left running is unknown from now on, and its revisions do not come back.
pub(crate) fn take_leftovers(
    opened: &mut Opened,
    path: &Path,
    time: &Time,
) -> Result<(), OpenError> {
    let now = time.now();
    let left: Vec<_> = opened.view.running().map(|live| (live.id, live.record.clone())).collect();
    if left.is_empty() {
        return Ok(());
    }
    let written = opened.db.unchecked_transaction().and_then(|transaction| {
        for (id, record) in left {
            let place = opened.view.index.get(&id).map(|slot| slot.place);
            let place = place.expect("a live record is in the index");
            let unknown = Record {
                state: State::Unknown { since: now },
                count: record.count.saturating_add(COUNT_STRIDE),
                ..record
            };
            rows::update(&transaction, place, id, &unknown)?;
            opened.view.put(id, place, unknown);
        }
        transaction.commit()
    });
    written.map_err(|error| OpenError::engine(path, error))
}

/// Leases are in memory only: those of this process, which is alive, outlive the reopening.
pub(crate) fn keep_leases(opened: &mut Opened, before: &View) {
    for live in before.running() {
        let look = opened.view.look(&live.id);
        let same = |record: &Record| {
            record.token == live.record.token && matches!(record.state, State::Running { .. })
        };
        if let (Some(place), true) = (look.place, look.record.as_ref().is_some_and(same)) {
            opened.view.put(live.id, place, live.record.clone());
        }
    }
}

fn scan(db: &Connection, path: &Path, mut meta: Meta) -> Result<(Meta, View), OpenError> {
    let routes = Routes::read(db).map_err(|error| OpenError::engine(path, error))?;
    let routes = routes.ok_or_else(|| OpenError::damaged(path, "a route is missing"))?;
    let mut view = View::new(routes);
    for class in &mut meta.classes {
        let scan = ClassScan { db, path, class: *class, live: Vec::new() };
        *class = scan.run(&mut view)?;
    }
    Ok((meta, view))
}

/// The scan of one class, from the new end to the old.
struct ClassScan<'a> {
    db: &'a Connection,
    path: &'a Path,
    class: Class,
    live: Vec<Place>,
}

impl ClassScan<'_> {
    fn run(mut self, view: &mut View) -> Result<Class, OpenError> {
        self.rows(view)?;
        for place in std::mem::take(&mut self.live) {
            self.load(view, place)?;
        }
        let sql = &Sql::of(self.class.class).last_response;
        let last: i64 =
            self.db.query_row(sql, [], |row| row.get(0)).map_err(|error| self.failed(error))?;
        self.class.next_response = last + 1;
        Ok(self.class)
    }

    fn rows(&mut self, view: &mut View) -> Result<(), OpenError> {
        let sql = &Sql::of(self.class.class).scan;
        let mut statement = self.db.prepare(sql).map_err(|error| self.failed(error))?;
        let mut rows = statement.query([]).map_err(|error| self.failed(error))?;
        let mut expected = None;
        while let Some(row) = rows.next().map_err(|error| self.failed(error))? {
            let number = row.get(0).map_err(|error| self.failed(error))?;
            let newest = self.class.next.max(number + 1) - 1;
            let expected = expected.replace(number - 1).unwrap_or(newest);
            if number != expected || number < 1 {
                return Err(self.damaged(expected));
            }
            self.row(view, number, row)?;
        }
        self.ends(expected)
    }

    /// Whether the rows begin and end where the file says. `before`: what would come before the oldest.
    fn ends(&mut self, before: Option<i64>) -> Result<(), OpenError> {
        let Class { first, next, .. } = self.class;
        let found = before.map_or(next, |before| before + 1);
        if found != first {
            return Err(self.damaged(first));
        }
        Ok(())
    }

    fn row(
        &mut self,
        view: &mut View,
        number: i64,
        row: &rusqlite::Row<'_>,
    ) -> Result<(), OpenError> {
        let place = Place { class: self.class.class, row: number };
        let Some(summary) = Summary::read(row) else {
            return Err(self.damaged(number));
        };
        if number >= self.class.next {
            self.class.next = number + 1;
        }
        match summary.state {
            GONE => return Ok(()),
            COMPLETED => {}
            _ => self.live.push(place),
        }
        if view.put_on_disk(summary.id, place).is_some() {
            return Err(OpenError::damaged(
                self.path,
                format!("row {number} repeats an operation"),
            ));
        }
        Ok(())
    }

    /// Takes a record that is not completed into memory. One that does not read stays on disk, unreadable.
    fn load(&self, view: &mut View, place: Place) -> Result<(), OpenError> {
        let found = rows::read(self.db, place, &view.routes).map_err(|error| self.failed(error))?;
        if let Found::Record(id, record) = found {
            view.put(id, place, *record);
        }
        Ok(())
    }

    fn damaged(&self, row: i64) -> OpenError {
        let class = self.class.class;
        OpenError::damaged(
            self.path,
            format!("row {row} of record_{class} is missing or does not read"),
        )
    }

    fn failed(&self, error: rusqlite::Error) -> OpenError {
        OpenError::engine(self.path, error)
    }
}

/// What the scan needs of a row.
struct Summary {
    id: OperationId,
    state: i64,
}

impl Summary {
    /// `None` if it cannot be told whose row this is.
    fn read(row: &rusqlite::Row<'_>) -> Option<Self> {
        let id: [u8; 16] = row.get_ref(1).ok()?.as_blob().ok()?.try_into().ok()?;
        let state = row.get_ref(2).ok()?.as_i64().ok()?;
        let crc = row.get_ref(3).ok()?.as_blob().ok()?;
        if !crc.starts_with(&owner_crc(&id, state)) {
            return None;
        }
        Some(Self { id: OperationId::from_bytes(id), state })
    }
}

/// Closes in an orderly way: the file then says exactly which rows it has.
pub(crate) fn seal(db: Connection, meta: &Meta) -> rusqlite::Result<()> {
    meta.write(&db)?;
    // Best effort: an outside reader may hold the log, and what is in it is durable anyway.
    if db.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE).is_ok() {
        connection::empty_log_at_close(&db, true)?;
    }
    db.flush_prepared_statement_cache();
    db.close().map_err(|(_, error)| error)
}

/// How far a count jumps when its process died: no renewal in memory ever got there.
const COUNT_STRIDE: u64 = 1 << 32;
