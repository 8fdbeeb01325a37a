//! The tables, and the numbers in the file header by which a store file is recognised.
//!
//! Every TTL class has two tables, one of records and one of responses. Rows are appended. A settle updates a row in
//! place and must not make it longer, or SQLite moves cells and splits pages:
//!
//! 1. Exactly one of the three times (`lease_until`, `unknown_since`, `expires_at`) is set in every state.
//! 2. SQLite stores 0 and 1 without a byte and other small numbers in one. *running* is 2 and its count 1: one byte.
//!    *completed* is 1 and its count at least 2: one byte again.
//! 3. `response` holds a number of the same width before there is a response.

use std::path::Path;

use rusqlite::Connection;

use crate::store::sqlite::error::SqliteOpenError;

/// "ONCE", at offset 68 of the file.
pub(crate) const APPLICATION_ID: i64 = 0x4F4E_4345;
/// At offset 60 of the file. Formats 1 (no targets, no check values), 2 (kept the highest time) and 3 (no audit trail) were
/// never released.
pub(crate) const FORMAT: i64 = 4;
pub(crate) const PAGE_BYTES: i64 = 4_096;

/// The numbers of the states. `GONE` marks the row of a deleted record until the sweep deletes the row.
pub(crate) const GONE: i64 = 0;
pub(crate) const COMPLETED: i64 = 1;
pub(crate) const RUNNING: i64 = 2;
pub(crate) const UNKNOWN: i64 = 3;
pub(crate) const RELEASED: i64 = 4;

/// The tables that every store has.
pub(crate) const META: &str = "CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
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

/// The audit trail: entries in their order, and the end of their chain. Empty where no trail is kept.
pub(crate) const AUDIT: &str = "CREATE TABLE audit (
    sequence INTEGER PRIMARY KEY CHECK (sequence > 0),
    hash BLOB NOT NULL CHECK (length(hash) = 32),
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    id BLOB,
    key BLOB,
    route TEXT NOT NULL,
    principal BLOB,
    attempt INTEGER,
    status INTEGER,
    count INTEGER,
    who TEXT,
    why TEXT,
    ids TEXT
) STRICT";
pub(crate) const AUDIT_AT: &str = "CREATE INDEX audit_at ON audit (at)";
pub(crate) const AUDIT_HEAD: &str = "CREATE TABLE audit_head (
    writer BLOB PRIMARY KEY,
    sequence INTEGER NOT NULL,
    hash BLOB NOT NULL,
    from_sequence INTEGER NOT NULL,
    from_hash BLOB NOT NULL,
    appended BLOB NOT NULL
) STRICT, WITHOUT ROWID";
pub(crate) const AUDIT_ID: &str = "CREATE INDEX audit_id ON audit (id, at)";

/// What every store has, by name.
pub(crate) const EVERY: [(&str, &str); 7] = [
    ("audit", AUDIT),
    ("audit_at", AUDIT_AT),
    ("audit_head", AUDIT_HEAD),
    ("audit_id", AUDIT_ID),
    ("check_value", CHECK_VALUE),
    ("meta", META),
    ("route", ROUTE),
];

/// Name and definition of the record table of a class. The columns that the scan at open reads come first.
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

/// Name and definition of the response table of a class.
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

/// Creates the tables of a class.
pub(crate) fn create_class(db: &Connection, class: u8) -> rusqlite::Result<()> {
    let ((_, record), (_, response)) = (record(class), response(class));
    db.execute_batch(&format!("{record}; {response};"))
}

/// Refuses every format but [`FORMAT`]. A file without a format is damaged: every store file has one.
pub(crate) fn check_format(path: &Path, found: i64) -> Result<(), SqliteOpenError> {
    let (path, supported) = (path.to_owned(), FORMAT);
    match found {
        FORMAT => Ok(()),
        1..FORMAT => Err(SqliteOpenError::Older { path, found, supported }),
        ..1 => Err(SqliteOpenError::damaged(&path, "it has no format")),
        _ => Err(SqliteOpenError::Newer { path, found, supported }),
    }
}

/// The first table that is not defined as in a store with these classes; `None` if all are.
pub(crate) fn differs(db: &Connection, classes: &[u8]) -> rusqlite::Result<Option<String>> {
    let mut wanted = EVERY.map(|(name, sql)| (name.to_owned(), sql.to_owned())).to_vec();
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
