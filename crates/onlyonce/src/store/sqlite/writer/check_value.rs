//! The check values: a small text per name, each with a checksum. See `Maintain::check_value`.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::sqlite::writer::job_error::{JobError, classify};
use crate::store::{Fault, StoreError};

/// The text under `name`.
pub(crate) fn read(db: &Connection, name: &str) -> Result<Option<String>, JobError> {
    let sql = "SELECT value, crc FROM check_value WHERE name = ?1";
    let row = db.query_row(sql, [name], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?)));
    let row: Option<(String, Vec<u8>)> = row.optional().map_err(classify)?;
    match row {
        Some((value, found)) if found != crc(name, &value) => {
            let why = format!("the check value {name:?} is damaged");
            Err(JobError::Job(Fault::NotDone(StoreError::Unreadable(why.into()))))
        }
        row => Ok(row.map(|(value, _)| value)),
    }
}

/// Sets the text under `name`, whatever was there.
pub(crate) fn write(db: &Connection, name: &str, value: &str) -> Result<(), JobError> {
    let sql = "INSERT OR REPLACE INTO check_value (name, value, crc) VALUES (?1, ?2, ?3)";
    let written = db.execute(sql, params![name, value, crc(name, value)]);
    written.map(drop).map_err(classify)
}

fn crc(name: &str, value: &str) -> [u8; 4] {
    // A name has no zero byte, so the boundary between name and value is part of the checksum.
    let crc = crc32c::crc32c_append(crc32c::crc32c(name.as_bytes()), &[0]);
    crc32c::crc32c_append(crc, value.as_bytes()).to_le_bytes()
}
