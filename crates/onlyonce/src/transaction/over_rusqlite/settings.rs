//! The settings of the caller's connection that the promise needs. They are checked and never changed: they are the
//! caller's.

use rusqlite::Connection;
use rusqlite::types::FromSql;

use super::Stop;
use crate::transaction::TransactionError;

/// Refuses a connection that would read the answer of a transaction that is not committed.
pub(crate) fn check_reading(db: &Connection) -> Result<(), Stop> {
    demand("read_uncommitted", number(db, "read_uncommitted")?, &[0], "0")
}

/// Refuses a connection whose commits may be lost, or that commits an operation without an answer. Call it in the
/// transaction: SQLite changes none of these settings until its end.
pub(crate) fn check_writing(db: &Connection) -> Result<(), Stop> {
    demand("foreign_keys", number(db, "foreign_keys")?, &[1], "ON")?;
    if cfg!(target_vendor = "apple") {
        // Else `fsync` leaves the data in the cache of the disk.
        demand("fullfsync", number(db, "fullfsync")?, &[1], "ON")?;
    }
    let journal_mode: String = read(db, "journal_mode")?;
    let synchronous = number(db, "synchronous")?;
    match journal_mode.as_str() {
        // NORMAL syncs the WAL at checkpoints only: a loss of power takes the last commits back.
        "wal" | "truncate" | "persist" => {
            demand("synchronous", synchronous, &[FULL, EXTRA], "FULL or EXTRA")
        }
        // Only EXTRA syncs the directory: else the deleted journal may come back, and undo the last commit.
        "delete" => demand("synchronous", synchronous, &[EXTRA], "EXTRA, or the journal mode WAL"),
        _ => Err(refused("journal_mode", journal_mode, "WAL, DELETE, TRUNCATE or PERSIST")),
    }
}

fn demand(
    pragma: &'static str,
    found: i64,
    allowed: &[i64],
    wanted: &'static str,
) -> Result<(), Stop> {
    if allowed.contains(&found) {
        return Ok(());
    }
    Err(refused(pragma, found.to_string(), wanted))
}

fn refused(pragma: &'static str, found: String, wanted: &'static str) -> Stop {
    TransactionError::Setting { pragma, found, wanted }.into()
}

fn number(db: &Connection, pragma: &str) -> Result<i64, Stop> {
    read(db, pragma)
}

/// Not with a cached statement: SQLite reads some of these settings when a statement is prepared.
fn read<T: FromSql>(db: &Connection, pragma: &str) -> Result<T, Stop> {
    Ok(db.query_row(&format!("PRAGMA main.{pragma}"), [], |row| row.get(0))?)
}

/// What SQLite calls its levels of `synchronous`.
const FULL: i64 = 2;
const EXTRA: i64 = 3;
