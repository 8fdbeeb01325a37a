//! Connections with the settings that the promise rests on, each read back.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, OpenFlags};

use crate::store::sqlite::error::OpenError;
use crate::store::sqlite::layout::schema;

/// A connection that may write. It does not make a file.
pub(crate) fn writable(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    empty_log_at_close(&db, false).map_err(|error| OpenError::engine(path, error))?;
    demand(&db, path, "journal_mode", "wal", "wal")?;
    demand(&db, path, "synchronous", "FULL", "2")?;
    demand(&db, path, "wal_autocheckpoint", "0", "0")?;
    Ok(db)
}

/// Writes the whole log back and empties it, without the shared memory: an outside reader keeps that
/// alive, with its word on what was written back before the disk failed. Refused while there is one.
pub(crate) fn empty_log_alone(path: &Path) -> Result<(), OpenError> {
    let failed = |error| OpenError::engine(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(failed)?;
    db.busy_timeout(Duration::ZERO).map_err(failed)?;
    empty_log_at_close(&db, false).map_err(failed)?;
    // Before anything is read: else the log is opened with the shared memory.
    demand(&db, path, "locking_mode", "exclusive", "exclusive")?;
    demand(&db, path, "journal_mode", "wal", "wal")?;
    demand(&db, path, "synchronous", "FULL", "2")?;
    let emptied = db.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE);
    emptied.map(drop).map_err(failed)
}

/// A connection that reads.
pub(crate) fn readable(path: &Path) -> Result<Connection, OpenError> {
    // Not SQLITE_OPEN_READ_ONLY: a reader of a WAL takes part in its shared memory.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    empty_log_at_close(&db, false).map_err(|error| OpenError::engine(path, error))?;
    demand(&db, path, "query_only", "1", "1")?;
    Ok(db)
}

/// Whether the last connection that closes writes the log back and removes it.
///
/// It must not after an error of the disk. A checkpoint that does not reach the end of the log is not
/// synced, yet counts as written back; if the sync of a later one fails, its pages are lost, and a
/// further one would skip them and remove the only copy. A log that is opened again is read from its start.
pub(crate) fn empty_log_at_close(db: &Connection, empties: bool) -> rusqlite::Result<()> {
    let kept = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    db.set_db_config(kept, !empties).map(drop)
}

/// A new file with no records in it, complete before anyone sees it under its name.
pub(crate) fn create(
    path: &Path,
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    let (application, format, page) = (schema::APPLICATION_ID, schema::FORMAT, schema::PAGE_BYTES);
    let made = db
        .execute_batch(&format!(
            "PRAGMA page_size = {page}; PRAGMA synchronous = FULL;
             PRAGMA application_id = {application}; PRAGMA user_version = {format};"
        ))
        .and_then(|()| fill(&db));
    made.map_err(|error| OpenError::engine(path, error))?;
    demand(&db, path, "journal_mode", "wal", "wal")?;
    db.close().map_err(|(_, error)| OpenError::engine(path, error))
}

/// A number that changes when another connection writes the file.
pub(crate) fn data_version(db: &Connection) -> rusqlite::Result<i64> {
    let mut statement = db.prepare_cached("PRAGMA data_version")?;
    statement.query_row([], |row| row.get(0))
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::engine(path, error);
    let db = Connection::open_with_flags(path, flags).map_err(failed)?;
    if db.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
        let source = std::io::ErrorKind::PermissionDenied.into();
        return Err(OpenError::NoPermission { path: path.to_owned(), source });
    }
    db.busy_timeout(BUSY_WAIT).map_err(failed)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    let settings = format!(
        "PRAGMA cache_size = -{CACHE_KIB}; PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;"
    );
    db.execute_batch(&settings).map_err(failed)?;
    Ok(db)
}

/// Sets `pragma`, reads it back, and refuses if it did not take.
fn demand(
    db: &Connection,
    path: &Path,
    pragma: &'static str,
    value: &str,
    wanted: &'static str,
) -> Result<(), OpenError> {
    let failed = |error| OpenError::engine(path, error);
    db.pragma_update(None, pragma, value).map_err(failed)?;
    let found = db.pragma_query_value(None, pragma, |row| row.get(0).map(text)).map_err(failed)?;
    if found == wanted {
        return Ok(());
    }
    Err(OpenError::NotDurable { path: path.to_owned(), pragma, wanted, found })
}

fn text(value: rusqlite::types::Value) -> String {
    match value {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    }
}

/// How long an outside reader or writer may hold up a step.
pub(crate) const BUSY_WAIT: Duration = Duration::from_secs(2);
const CACHE_KIB: usize = 16_384;
/// Every statement of every class stays prepared.
const STATEMENTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    // threat E1
    #[test]
    fn a_setting_that_does_not_take_is_refused() {
        let db = Connection::open_in_memory().unwrap();
        let refused = demand(&db, Path::new("store.db"), "journal_mode", "wal", "wal");
        let found = "memory".to_owned();
        assert!(matches!(refused, Err(OpenError::NotDurable { found: is, .. }) if is == found));
    }
}
