//! Checks the header of the file before SQLite opens it: SQLite would recover the journal of a database that is not ours.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::layout::schema;

/// Refuses a file that is not a store, has another format, or is shorter than its header says. `length` is its length.
pub(crate) fn check(path: &Path, wal: &Path, length: u64) -> Result<(), SqliteOpenError> {
    let mut header = [0; HEADER_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(SqliteOpenError::damaged(path, "it is cut short"));
        }
        read => read.map_err(|error| SqliteOpenError::io(path, error))?,
    }
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if !header.starts_with(MAGIC) || i64::from(number(68)) != schema::APPLICATION_ID {
        return Err(SqliteOpenError::NotOurs { path: path.to_owned() });
    }
    schema::check_format(path, i64::from(number(60)))?;
    let page_bytes = i64::from(u16::from_be_bytes([header[16], header[17]]));
    if page_bytes != schema::PAGE_BYTES {
        return Err(SqliteOpenError::damaged(path, "its header has another page size"));
    }
    // With a WAL, the end of the file may be in there.
    let has_wal = fs::metadata(wal).is_ok_and(|wal| wal.len() > 0);
    if !has_wal && length < (page_bytes * i64::from(number(28))).unsigned_abs() {
        return Err(SqliteOpenError::damaged(path, "it is cut short"));
    }
    Ok(())
}

const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
