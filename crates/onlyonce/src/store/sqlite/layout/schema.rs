//! The tables, and the numbers by which a file is known to be ours.
//!
//! Every TTL class has a pair of tables. Rows are appended, and updated only in columns whose size
//! then stays the same, so that a row does not grow: *running* (2, one byte) with count 1 (none)
//! becomes *completed* (1, none) with a count of one byte, exactly one of the three moments is set,
//! and `response` holds a number of the same width before there is a response.

use std::path::Path;

use rusqlite::Connection;

use crate::store::sqlite::error::OpenError;

/// "ONCE", at offset 68 of the file.
pub(crate) const APPLICATION_ID: i64 = 0x4F4E_4345;
/// At offset 60 of the file. 1: without targets and check values; 2: with a held clock. Neither was released.
pub(crate) const FORMAT: i64 = 3;
pub(crate) const PAGE_BYTES: i64 = 4_096;

/// How a state is written. `GONE` is a row whose record was deleted, until the sweep reaches it.
pub(crate) const GONE: i64 = 0;
pub(crate) const COMPLETED: i64 = 1;
pub(crate) const RUNNING: i64 = 2;
pub(crate) const UNKNOWN: i64 = 3;
pub(crate) const RELEASED: i64 = 4;

/// The tables that every store has.
pub(crate) const META: &str = "CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    generation BLOB NOT NULL,
    moved_to TEXT,
    classes TEXT NOT NULL,
    crc BLOB NOT NULL
) STRICT";
pub(crate) const ROUTE: &str = "CREATE TABLE route (
    row INTEGER PRIMARY KEY,
    route TEXT NOT NULL
) STRICT";
pub(crate) const CHECK_VALUE: &str = "CREATE TABLE check_value (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    crc BLOB NOT NULL CHECK (length(crc) = 4)
) STRICT, WITHOUT ROWID";

/// The name and the definition of a class's table of records. What the scan at open reads comes first.
pub(crate) fn record(class: u8) -> (String, String) {
    let name = format!("record_{class}");
    let sql = format!(
        "CREATE TABLE {name} (
    row INTEGER PRIMARY KEY,
    id BLOB NOT NULL CHECK (length(id) = 16),
    state INTEGER NOT NULL,
    crc BLOB NOT NULL CHECK (length(crc) = 8),
    first_claimed_at INTEGER NOT NULL,
    unknown_since INTEGER,
    expires_at INTEGER,
    ttl_ms INTEGER NOT NULL,
    lease_until INTEGER,
    token BLOB NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    taken_from INTEGER,
    taken_at INTEGER,
    settled_by INTEGER CHECK (settled_by BETWEEN 1 AND 4),
    response INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    quiet_ms INTEGER NOT NULL,
    route INTEGER NOT NULL,
    fingerprint_version INTEGER NOT NULL,
    fingerprint_canonical BLOB NOT NULL,
    fingerprint_raw BLOB NOT NULL,
    principal BLOB NOT NULL,
    key TEXT NOT NULL,
    target TEXT NOT NULL,
    CHECK (CASE state
        WHEN {GONE} THEN lease_until IS NULL AND unknown_since IS NULL AND expires_at IS NULL AND settled_by IS NULL
        WHEN {COMPLETED} THEN lease_until IS NULL AND unknown_since IS NULL AND expires_at IS NOT NULL AND settled_by IS NOT NULL
        WHEN {RUNNING} THEN lease_until IS NOT NULL AND unknown_since IS NULL AND expires_at IS NULL AND settled_by IS NULL
        WHEN {UNKNOWN} THEN lease_until IS NULL AND unknown_since IS NOT NULL AND expires_at IS NULL AND settled_by IS NULL
        WHEN {RELEASED} THEN lease_until IS NULL AND unknown_since IS NULL AND expires_at IS NOT NULL AND settled_by IS NULL
        ELSE 0 END),
    CHECK (CASE taken_from
        WHEN {UNKNOWN} THEN taken_at IS NOT NULL
        WHEN {RELEASED} THEN taken_at IS NOT NULL
        ELSE taken_from IS NULL AND taken_at IS NULL END)
) STRICT"
    );
    (name, sql)
}

/// The name and the definition of a class's table of responses.
pub(crate) fn response(class: u8) -> (String, String) {
    let name = format!("response_{class}");
    let sql = format!(
        "CREATE TABLE {name} (
    row INTEGER PRIMARY KEY,
    crc BLOB NOT NULL CHECK (length(crc) = 4),
    head BLOB NOT NULL,
    body BLOB
) STRICT"
    );
    (name, sql)
}

/// The tables of a class.
pub(crate) fn create_class(db: &Connection, class: u8) -> rusqlite::Result<()> {
    let ((_, record), (_, response)) = (record(class), response(class));
    db.execute_batch(&format!("{record}; {response};"))
}

/// Refuses every format but ours. A file always has one, so that none is damage.
pub(crate) fn check_format(path: &Path, found: i64) -> Result<(), OpenError> {
    let (path, supported) = (path.to_owned(), FORMAT);
    match found {
        FORMAT => Ok(()),
        1..FORMAT => Err(OpenError::Older { path, found, supported }),
        ..1 => Err(OpenError::damaged(&path, "it has no format")),
        _ => Err(OpenError::Newer { path, found, supported }),
    }
}

/// Whether the file's tables are exactly those of a store with these classes; else the first that is not.
pub(crate) fn differs(db: &Connection, classes: &[u8]) -> rusqlite::Result<Option<String>> {
    let every = [("meta", META), ("route", ROUTE), ("check_value", CHECK_VALUE)];
    let mut wanted = every.map(|(name, sql)| (name.to_owned(), sql.to_owned())).to_vec();
    for class in classes {
        wanted.extend([record(*class), response(*class)]);
    }
    wanted.sort();
    let mut found = db.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name")?;
    let found = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found: Vec<(String, String)> = found.collect::<Result<_, _>>()?;
    let differing = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
    Ok(match differing {
        Some((wanted, _)) => Some(wanted.0.clone()),
        None if wanted.len() != found.len() => Some("the list of tables".to_owned()),
        None => None,
    })
}
