//! SQLite connections, and the settings that durability needs: each one is set, read back, and refused if it did not take.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, ffi};

use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::file::ownership::OwnedFile;
use crate::store::sqlite::layout::schema;

/// A connection that may write. It never creates a file.
pub(crate) fn writable(path: &Path) -> Result<Connection, SqliteOpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    set_checkpoint_at_close(&db, false).map_err(|error| SqliteOpenError::engine(path, error))?;
    set_and_verify(&db, path, "journal_mode", "wal", "wal")?;
    set_and_verify(&db, path, "synchronous", "FULL", "2")?;
    set_and_verify(&db, path, "wal_autocheckpoint", "0", "0")?;
    Ok(db)
}

/// Writes the whole WAL back to the file and empties it, as the only connection and without the shared memory of the
/// WAL (`-shm`). That memory says which pages were written back, and is wrong after a failed sync; a program that reads
/// the file keeps it alive. So this is refused as busy while there is one.
pub(crate) fn empty_wal_exclusively(owned: &mut OwnedFile) -> Result<(), SqliteOpenError> {
    let path = &owned.path().to_owned();
    let failed = |error| SqliteOpenError::engine(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(failed)?;
    db.busy_timeout(Duration::ZERO).map_err(failed)?;
    set_checkpoint_at_close(&db, false).map_err(failed)?;
    // Before anything is read: else SQLite opens the WAL with its shared memory.
    set_and_verify(&db, path, "locking_mode", "exclusive", "exclusive")?;
    set_and_verify(&db, path, "journal_mode", "wal", "wal")?;
    set_and_verify(&db, path, "synchronous", "FULL", "2")?;
    empty_wal(&db, owned)
}

/// Writes the whole WAL back to the file, and then empties it. In between the lock file is told that none is expected any more: a
/// crash at any point leaves either the WAL or no note of it.
pub(crate) fn empty_wal(db: &Connection, owned: &mut OwnedFile) -> Result<(), SqliteOpenError> {
    let path = &owned.path().to_owned();
    let failed = |error| SqliteOpenError::engine(path, error);
    checkpoint(db, Checkpoint::Restart).map_err(failed)?;
    owned.expect_no_wal().map_err(|error| SqliteOpenError::io(path, error))?;
    checkpoint(db, Checkpoint::Truncate).map(drop).map_err(failed)
}

/// A connection that only reads.
pub(crate) fn readable(path: &Path) -> Result<Connection, SqliteOpenError> {
    // Not SQLITE_OPEN_READ_ONLY: a reader writes to the shared memory of the WAL.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    set_checkpoint_at_close(&db, false).map_err(|error| SqliteOpenError::engine(path, error))?;
    set_and_verify(&db, path, "query_only", "1", "1")?;
    Ok(db)
}

/// A connection for another process than the one that has the store: it cannot write.
pub(crate) fn read_only(path: &Path) -> Result<Connection, SqliteOpenError> {
    let failed = |error| SqliteOpenError::engine(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(failed)?;
    db.busy_timeout(BUSY_WAIT).map_err(failed)?;
    set_checkpoint_at_close(&db, false).map_err(failed)?;
    db.execute_batch("PRAGMA trusted_schema = OFF;").map_err(failed)?;
    Ok(db)
}

/// Whether SQLite writes the WAL back and removes it when the last connection closes.
///
/// After an I/O error it must not. A checkpoint that does not reach the end of the WAL is not synced, yet SQLite counts
/// its pages as written back. If the sync of a later checkpoint fails, those pages are lost, and the checkpoint at close
/// would skip them and remove the WAL, the only copy. A WAL that is opened again is read from its start.
pub(crate) fn set_checkpoint_at_close(db: &Connection, empties: bool) -> rusqlite::Result<()> {
    let kept = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    db.set_db_config(kept, !empties).map(drop)
}

/// Creates a new file without records. The caller renames it to its name once it is complete.
pub(crate) fn create(
    path: &Path,
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), SqliteOpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = open(path, flags)?;
    let (application, format, page) = (schema::APPLICATION_ID, schema::FORMAT, schema::PAGE_BYTES);
    let made = db
        .execute_batch(&format!(
            "PRAGMA page_size = {page}; PRAGMA synchronous = FULL;
             PRAGMA application_id = {application}; PRAGMA user_version = {format};"
        ))
        .and_then(|()| fill(&db));
    made.map_err(|error| SqliteOpenError::engine(path, error))?;
    set_and_verify(&db, path, "journal_mode", "wal", "wal")?;
    db.close().map_err(|(_, error)| SqliteOpenError::engine(path, error))
}

/// What a checkpoint does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checkpoint {
    /// Nothing but count the pages of the WAL.
    Noop,
    /// Write back what no reader needs, without waiting.
    Passive,
    /// Write everything back, so that the next commit starts at the beginning of the WAL.
    Restart,
    /// Like `Restart`, and cut the WAL to no bytes.
    Truncate,
}

/// Runs a checkpoint and returns the number of pages in the WAL. If another connection prevents it, the error is
/// `SQLITE_BUSY`. By PRAGMA, because the function for it differs between the versions of rusqlite that are allowed.
pub(crate) fn checkpoint(db: &Connection, what: Checkpoint) -> rusqlite::Result<i32> {
    let sql = match what {
        Checkpoint::Noop => "PRAGMA wal_checkpoint(NOOP)",
        Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
        Checkpoint::Restart => "PRAGMA wal_checkpoint(RESTART)",
        Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    let mut statement = db.prepare_cached(sql)?;
    let (busy, pages): (bool, i32) =
        statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if busy {
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None));
    }
    Ok(pages)
}

/// A number that changes when another program writes the file, and not by writes on `db`.
pub(crate) fn data_version(db: &Connection) -> rusqlite::Result<i64> {
    let mut statement = db.prepare_cached("PRAGMA data_version")?;
    statement.query_row([], |row| row.get(0))
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, SqliteOpenError> {
    let failed = |error| SqliteOpenError::engine(path, error);
    let db = Connection::open_with_flags(path, flags).map_err(failed)?;
    if db.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
        let source = std::io::ErrorKind::PermissionDenied.into();
        return Err(SqliteOpenError::NoPermission { path: path.to_owned(), source });
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
fn set_and_verify(
    db: &Connection,
    path: &Path,
    pragma: &'static str,
    value: &str,
    wanted: &'static str,
) -> Result<(), SqliteOpenError> {
    let failed = |error| SqliteOpenError::engine(path, error);
    db.pragma_update(None, pragma, value).map_err(failed)?;
    let found = db.pragma_query_value(None, pragma, |row| row.get(0).map(text)).map_err(failed)?;
    if found == wanted {
        return Ok(());
    }
    Err(SqliteOpenError::NotDurable { path: path.to_owned(), pragma, wanted, found })
}

fn text(value: rusqlite::types::Value) -> String {
    match value {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    }
}

/// How long a statement waits for another program that reads or writes the file.
pub(crate) const BUSY_WAIT: Duration = Duration::from_secs(2);
const CACHE_KIB: usize = 16_384;
/// Enough for every statement of every TTL class to stay prepared.
const STATEMENTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    // threat E1
    #[test]
    fn a_setting_that_does_not_take_is_refused() {
        let db = Connection::open_in_memory().unwrap();
        let refused = set_and_verify(&db, Path::new("store.db"), "journal_mode", "wal", "wal");
        let found = "memory".to_owned();
        assert!(
            matches!(refused, Err(SqliteOpenError::NotDurable { found: is, .. }) if is == found)
        );
    }
}
