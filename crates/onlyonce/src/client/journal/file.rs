//! Opens the journal's file: private to its owner, checked to be a journal, and durable before it is used.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::JournalError;

/// Opens the journal at `path`, or makes it.
pub(super) fn open(path: &Path) -> Result<Connection, JournalError> {
    private().open(path).map_err(JournalError::File)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    prepare(&mut connection)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A new file is durable only once its folder is synced.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync(folder.unwrap_or_else(|| Path::new("."))).map_err(JournalError::File)?;
    Ok(connection)
}

/// Makes the table in a file that is empty; refuses one that is not ours.
fn prepare(connection: &mut Connection) -> Result<(), JournalError> {
    let transaction = connection
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .map_err(not_ours)?;
    let number = |name| transaction.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (id, format) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        transaction.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))?;
    match (id, format, tables) {
        (APPLICATION_ID, FORMAT, _) => return Ok(()),
        (0, 0, 0) => {}
        _ => return Err(JournalError::NotOurs),
    }
    transaction.execute_batch(SCHEMA)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    Ok(transaction.commit()?)
}

fn not_ours(error: rusqlite::Error) -> JournalError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => JournalError::NotOurs,
        _ => error.into(),
    }
}

/// The lock of the one process that may resume. It ends with the file's handle, and so with the process.
pub(super) fn lock(path: &Path) -> Result<File, JournalError> {
    let mut name = path.as_os_str().to_owned();
    name.push("-resume");
    let lock = private().open(PathBuf::from(name)).map_err(JournalError::File)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(JournalError::InUse),
        Err(TryLockError::Error(error)) => Err(JournalError::File(error)),
    }
}

/// Only the owner reads requests and credentials.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn sync(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

const SCHEMA: &str = "
CREATE TABLE entry (
    key TEXT NOT NULL PRIMARY KEY,
    digest BLOB NOT NULL,
    first_sent_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    has_doubt INTEGER NOT NULL CHECK (has_doubt IN (0, 1)),
    closed TEXT CHECK (closed IN ('window', 'closed', 'key_reused')),
    has_body INTEGER NOT NULL CHECK (has_body IN (0, 1)),
    window_ms INTEGER,
    request BLOB NOT NULL
) STRICT, WITHOUT ROWID;";
/// `oocj`.
const APPLICATION_ID: i64 = 0x6f6f_636a;
const FORMAT: i64 = 2;
const BUSY_WAIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    // R151
    #[test]
    fn every_commit_is_on_the_disk_before_it_returns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for _ in 0..2 {
            let connection = open(&path).unwrap();
            let synchronous = connection.pragma_query_value(None, "synchronous", |row| row.get(0));
            assert_eq!(synchronous, Ok(2), "FULL");
            let mode: String =
                connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            assert_eq!(mode, "wal");
        }
    }
}
