//! A row of the journal: one operation, and how far it came.

use std::fmt;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use super::seal::Seal;
use super::{JournalError, Open, codec};
use crate::client::decide::Course;
use crate::client::outcome::{Doubt, Stop};
use crate::clock::StoreTime;
use crate::key::Key;

pub(super) struct Row {
    pub(super) digest: Vec<u8>,
    pub(super) first_sent_ms: i64,
    pub(super) attempts: u32,
    pub(super) has_doubt: bool,
    /// Why only a person can settle it, if that is so.
    pub(super) closed: Option<Stop>,
    pub(super) has_body: bool,
    /// How long the server keeps the key, if that is known.
    pub(super) window_ms: Option<i64>,
    pub(super) request: Vec<u8>,
}

/// As [`Row::read`] reads them.
pub(super) const COLUMNS: &str =
    "digest, first_sent_ms, attempts, has_doubt, closed, has_body, window_ms, request";

impl Row {
    /// From the columns that begin at `at`.
    pub(super) fn read(row: &rusqlite::Row<'_>, at: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            digest: row.get(at)?,
            first_sent_ms: row.get(at + 1)?,
            attempts: row.get(at + 2)?,
            has_doubt: row.get(at + 3)?,
            closed: row.get::<_, Option<String>>(at + 4)?.as_deref().map(stop_named),
            has_body: row.get(at + 5)?,
            window_ms: row.get(at + 6)?,
            request: row.get(at + 7)?,
        })
    }

    /// The row as it is after one more attempt that begins with `course`. What was proved not executed begins
    /// anew: no service has seen its key, so it cannot have forgotten it.
    pub(super) fn restarted(self, course: &Course) -> Self {
        match self.has_doubt {
            true => self,
            false => Self { first_sent_ms: course.first_sent.as_ms(), ..self },
        }
    }

    pub(super) fn continued(&self, course: Course) -> Course {
        Course {
            first_sent: StoreTime::from_ms(self.first_sent_ms).min(course.first_sent),
            sends: self.attempts,
            doubt: self.has_doubt.then_some(Doubt::EarlierRun),
            window: course.window.or_else(|| self.window()),
            ..course
        }
    }

    fn window(&self) -> Option<Duration> {
        self.window_ms.and_then(|ms| ms.try_into().ok()).map(Duration::from_millis)
    }

    /// The row as it is shown, without the request, which may be secret.
    pub(super) fn open(&self, key: Key, seal: Option<&Seal>) -> Open {
        let request = self.unsealed(&key, seal);
        Open {
            first_sent: StoreTime::from_ms(self.first_sent_ms),
            attempts: self.attempts,
            is_in_doubt: self.has_doubt,
            needs_reconciling: self.closed.is_some(),
            target: request.ok().and_then(|request| codec::target(&request)),
            key,
        }
    }

    pub(super) fn unsealed(&self, key: &Key, seal: Option<&Seal>) -> Result<Vec<u8>, JournalError> {
        match seal {
            Some(seal) => seal.open(key.as_str(), &self.request),
            None => Ok(self.request.clone()),
        }
    }
}

/// The name of a stop in the journal.
pub(super) fn name_of(stop: Stop) -> &'static str {
    match stop {
        Stop::Window => "window",
        Stop::KeyReused => "key_reused",
        _ => "closed",
    }
}

fn stop_named(name: &str) -> Stop {
    match name {
        "window" => Stop::Window,
        "key_reused" => Stop::KeyReused,
        _ => Stop::Closed,
    }
}

/// Without the request, which may be secret.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("attempts", &self.attempts).finish_non_exhaustive()
    }
}

/// Inserts the row, or returns the one that is there with the same request.
pub(super) fn insert(
    connection: &mut Connection,
    key: &str,
    row: &Row,
) -> Result<Option<Row>, JournalError> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = find(&transaction, key)?;
    match found {
        Some(found) if found.digest == row.digest => return Ok(Some(found)),
        Some(found) => return Err(JournalError::Reused { is_in_doubt: found.has_doubt }),
        None => {}
    }
    write(&transaction, key, row, row.attempts)?;
    transaction.commit()?;
    Ok(None)
}

/// Notes one more attempt, and the request and its window if it `moved`. A row that another process has settled
/// meanwhile, or that was removed by hand, is written anew with `attempts`: nothing is sent that is not in the journal.
pub(super) fn note(
    connection: &mut Connection,
    key: &str,
    row: &Row,
    attempts: u32,
    moved: Option<(Vec<u8>, Option<i64>)>,
) -> Result<(), JournalError> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // The right side is read before anything is set.
    let sql = "UPDATE entry SET attempts = attempts + 1, has_doubt = 1,
        first_sent_ms = CASE has_doubt WHEN 0 THEN ?2 ELSE first_sent_ms END WHERE key = ?1";
    if transaction.execute(sql, (key, row.first_sent_ms))? == 0 {
        write(&transaction, key, row, attempts)?;
    }
    if let Some((request, window_ms)) = moved {
        let sql = "UPDATE entry SET request = ?2, window_ms = ?3 WHERE key = ?1";
        transaction.execute(sql, (key, request, window_ms))?;
    }
    Ok(transaction.commit()?)
}

/// A row that is written is in doubt: the first byte follows without another write.
fn write(connection: &Connection, key: &str, row: &Row, attempts: u32) -> rusqlite::Result<()> {
    let sql =
        format!("INSERT INTO entry (key, {COLUMNS}) VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8)");
    connection.execute(
        &sql,
        rusqlite::params![
            key,
            row.digest,
            row.first_sent_ms,
            attempts,
            row.closed.map(name_of),
            row.has_body,
            row.window_ms,
            row.request
        ],
    )?;
    Ok(())
}

pub(super) fn find(connection: &Connection, key: &str) -> Result<Option<Row>, JournalError> {
    let sql = format!("SELECT {COLUMNS} FROM entry WHERE key = ?1");
    Ok(connection.query_row(&sql, [key], |row| Row::read(row, 0)).optional()?)
}
