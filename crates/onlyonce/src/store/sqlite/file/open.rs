//! Opens the file: creates or checks it, empties its WAL, builds the index, and marks leftover running records unknown.

use std::path::Path;

use rusqlite::Connection;

use crate::planted::{Planted, planted};
use crate::record::{Record, State, Token};
use crate::store::audit::{Chain, Note, WriterId};
use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::file::connection;
use crate::store::sqlite::file::ownership::OwnedFile;
use crate::store::sqlite::index::{Index, build};
use crate::store::sqlite::layout::audit_rows;
use crate::store::sqlite::layout::meta::Meta;
use crate::store::sqlite::layout::rows;
use crate::store::sqlite::layout::schema;
use crate::store::sqlite::time::Time;

/// A file that was opened, and the index of its records.
pub(crate) struct Opened {
    pub(crate) db: Connection,
    pub(crate) meta: Meta,
    pub(crate) index: Index,
    /// The end of the audit trail; `None` if none is kept.
    pub(crate) chain: Option<Chain>,
}

/// Creates the file if there never was one, and checks its WAL before SQLite reads it. `accepts_forgetting`: also if the WAL is
/// known to have lost records.
pub(crate) fn create_if_absent(
    owned: &mut OwnedFile,
    accepts_forgetting: bool,
) -> Result<(), SqliteOpenError> {
    if !accepts_forgetting {
        owned.check_not_rescued()?;
    }
    if !owned.inspect()? {
        owned.create(|new| {
            connection::create(new, |db| {
                let transaction = db.unchecked_transaction()?;
                schema::EVERY.iter().try_for_each(|(_, sql)| db.execute_batch(sql))?;
                Meta::new().write(db)?;
                transaction.commit()
            })
        })?;
    }
    owned.lock_file()?;
    owned.write_marker()?;
    match owned.check_wal() {
        Err(SqliteOpenError::LogLost { .. }) if accepts_forgetting => Ok(()),
        checked => checked,
    }
}

/// Opens the file and builds the index. The WAL is written back and emptied first: an earlier process may have failed
/// to sync it.
pub(crate) fn open(owned: &mut OwnedFile, keeps_trail: bool) -> Result<Opened, SqliteOpenError> {
    let db = connection::writable(owned.path())?;
    let meta = check(&db, owned.path())?;
    connection::empty_wal(&db, owned)?;
    let path = owned.path();
    let (meta, index) = build::index_of(&db, path, meta)?;
    let chain = keeps_trail.then(|| chain(&db, path)).transpose()?;
    Ok(Opened { db, meta, index, chain })
}

/// The end of the audit trail, from which the writer goes on. Entries behind it are not ours: the next one could not be
/// written.
fn chain(db: &Connection, path: &Path) -> Result<Chain, SqliteOpenError> {
    let failed = |error| SqliteOpenError::engine(path, error);
    let chain = audit_rows::read_chain(db).map_err(failed)?;
    let chain = chain.unwrap_or_else(|| Chain::new(WriterId::new(*Token::random().as_bytes(), 0)));
    let (end, last) = (chain.head.last.sequence, audit_rows::last_sequence(db).map_err(failed)?);
    if last > end {
        let what = format!(
            "its audit trail ends with entry {end}, and somebody added others up to {last}; \
             look at them, then delete them"
        );
        return Err(SqliteOpenError::damaged(path, what));
    }
    Ok(chain)
}

/// Checks format, meta row and table definitions.
pub(super) fn check(db: &Connection, path: &Path) -> Result<Meta, SqliteOpenError> {
    let failed = |error| SqliteOpenError::engine(path, error);
    let format = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
    schema::check_format(path, format)?;
    let meta = Meta::read(db).map_err(failed)?;
    let meta = meta.ok_or_else(|| SqliteOpenError::damaged(path, "its meta row is wrong"))?;
    if let Some(to) = &meta.moved_to {
        return Err(SqliteOpenError::Moved { path: path.to_owned(), to: to.clone() });
    }
    let classes: Vec<_> = meta.classes.iter().map(|class| class.class).collect();
    match schema::differs(db, &classes).map_err(failed)? {
        Some(table) => {
            Err(SqliteOpenError::damaged(path, format!("{table} is not defined as it should be")))
        }
        None => Ok(meta),
    }
}

/// Marks every running record unknown: its owner was a process that is dead. The count jumps, so that no revision of a
/// renewal, which was only in memory, is used again.
pub(crate) fn mark_leftovers_unknown(
    opened: &mut Opened,
    path: &Path,
    time: &Time,
) -> Result<(), SqliteOpenError> {
    let now = time.now();
    let left: Vec<_> = opened.index.running().map(|live| (live.id, live.record.clone())).collect();
    if left.is_empty() {
        return Ok(());
    }
    let written = opened.db.unchecked_transaction().and_then(|transaction| {
        for (id, record) in left {
            let place = opened.index.ids.get(&id).map(|slot| slot.place);
            let place = place.expect("a live record is in the index");
            let state = match planted(Planted::RestartReleases) {
                true => State::Released { expires_at: now.plus_ms(record.ttl_ms) },
                false => State::Unknown { since: now },
            };
            let unknown =
                Record { state, count: record.count.saturating_add(COUNT_STRIDE), ..record };
            rows::update(&transaction, place, id, &unknown)?;
            if let Some(chain) = &mut opened.chain {
                let entry = chain.add(now, Note::left_unknown(id, &unknown));
                audit_rows::insert(&transaction, &entry)?;
            }
            opened.index.put(id, place, unknown);
        }
        if let Some(chain) = &opened.chain {
            audit_rows::write_chain(&transaction, chain)?;
        }
        transaction.commit()
    });
    written.map_err(|error| SqliteOpenError::engine(path, error))
}

/// After a reopening: takes the running records of this process from the index before, with their renewed leases, which
/// are in memory only.
pub(crate) fn keep_leases(opened: &mut Opened, before: &Index) {
    for live in before.running() {
        let lookup = opened.index.lookup(&live.id);
        let same = |record: &Record| {
            record.token == live.record.token && matches!(record.state, State::Running { .. })
        };
        if let (Some(place), true) = (lookup.place, lookup.record.as_ref().is_some_and(same)) {
            opened.index.put(live.id, place, live.record.clone());
        }
    }
}

/// Writes the exact row numbers to the meta row, empties the WAL and closes the file.
pub(crate) fn close_cleanly(
    db: Connection,
    meta: &Meta,
    owned: &mut OwnedFile,
) -> rusqlite::Result<()> {
    meta.write(&db)?;
    // Best effort: a program that reads the file may prevent it, and the WAL is durable anyway.
    if connection::empty_wal(&db, owned).is_ok() {
        connection::set_checkpoint_at_close(&db, true)?;
    }
    db.flush_prepared_statement_cache();
    db.close().map_err(|(_, error)| error)
}

/// How far the count of a leftover record jumps: further than the renewals of any process.
const COUNT_STRIDE: u64 = 1 << 32;
