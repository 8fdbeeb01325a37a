//! The tables in the caller's file, and what is read from and written to them.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::Stop;
use crate::clock::StoreTime;
use crate::hex::uuid_text;
use crate::transaction::parameters::Parameters;
use crate::transaction::{Begun, Reply, TransactionError};

/// Makes the tables if there are none.
pub(super) fn prepare(db: &Connection) -> Result<(), Stop> {
    if is_prepared(db)? {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
    // Again: another process may have made them before this one could write.
    if !is_prepared(&transaction)? {
        transaction.execute_batch(include_str!("tables.sql"))?;
        transaction.commit()?;
    }
    Ok(())
}

fn is_prepared(db: &Connection) -> Result<bool, Stop> {
    match require_version(db) {
        Ok(()) => Ok(true),
        Err(Stop::Failed(TransactionError::NotInstalled(_))) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Refuses tables that another version has made.
pub(super) fn require_version(db: &Connection) -> Result<(), Stop> {
    let mut read = db.prepare_cached("SELECT version FROM main.onlyonce_schema")?;
    let version: Option<i64> = read.query_row([], |row| row.get(0)).optional()?;
    if version == Some(VERSION) {
        return Ok(());
    }
    Err(TransactionError::OtherVersion.into())
}

/// What the file holds for an operation.
pub(super) struct Held {
    fingerprint: Vec<u8>,
    /// The answer and when it expires, if there is one.
    answer: Option<(i32, String, Vec<u8>, StoreTime)>,
}

impl Held {
    pub(super) fn read(db: &Connection, id: &str) -> Result<Option<Self>, Stop> {
        require_version(db)?;
        let mut read = db.prepare_cached(
            "SELECT fingerprint, status, headers, body, expires_at
               FROM main.onlyonce_transactional WHERE id = ?1",
        )?;
        Ok(read.query_row([id], Self::of).optional()?)
    }

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let answer = match row.get(1)? {
            Some(status) => {
                Some((status, row.get(2)?, row.get(3)?, StoreTime::from_ms(row.get(4)?)))
            }
            None => None,
        };
        Ok(Self { fingerprint: row.get(0)?, answer })
    }

    /// What a caller who asks with `fingerprint` gets; `None` if it has expired and the operation runs again.
    pub(super) fn outcome<T>(
        self,
        fingerprint: &[u8],
        now: StoreTime,
    ) -> Result<Option<Begun<T>>, TransactionError> {
        match self.answer {
            None => Err(TransactionError::WithoutAnswer(UNANSWERED.into())),
            Some((.., expires_at)) if expires_at <= now => Ok(None),
            Some(_) if self.fingerprint != fingerprint => Ok(Some(Begun::Reused)),
            Some((status, headers, body, _)) => {
                Ok(Some(Begun::Replay(Reply::kept(status, &headers, body)?)))
            }
        }
    }
}

/// Adds the operation, in place of one that has expired.
pub(super) fn insert(
    db: &Connection,
    id: &str,
    asked: &Parameters,
    now: StoreTime,
) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM main.onlyonce_transactional WHERE id = ?1")?.execute([id])?;
    let mut insert = db.prepare_cached(
        "INSERT INTO main.onlyonce_transactional
           (id, scope, principal, key, fingerprint, begun_at, unanswered)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1)",
    )?;
    let Parameters { scope, principal, key, fingerprint, .. } = asked;
    insert.execute(params![id, scope, principal, key, fingerprint, now.as_ms()])?;
    Ok(())
}

/// Whether the open transaction has begun the operation and not completed it.
pub(super) fn is_open(db: &Connection, id: &str) -> rusqlite::Result<bool> {
    let mut read = db.prepare_cached(
        "SELECT 1 FROM main.onlyonce_transactional WHERE id = ?1 AND status IS NULL",
    )?;
    read.exists([id])
}

/// Keeps the answer.
pub(super) fn complete(
    db: &Connection,
    id: &str,
    reply: &Reply,
    expires_at: StoreTime,
) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached(
        "UPDATE main.onlyonce_transactional
            SET unanswered = NULL, status = ?2, headers = ?3, body = ?4, expires_at = ?5
          WHERE id = ?1 AND status IS NULL",
    )?;
    let (status, headers) = (reply.status.as_u16(), reply.headers_json());
    update.execute(params![id, status, headers, &reply.body[..], expires_at.as_ms()])?;
    Ok(())
}

/// Adds a message to the operation, and returns its id.
pub(super) fn add_message(
    db: &Connection,
    operation: &str,
    (topic, key, payload): (&str, Option<&str>, &[u8]),
    now: StoreTime,
) -> Result<String, Stop> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| TransactionError::NotDone(error.into()))?;
    let id = uuid_text(random);
    let mut insert = db.prepare_cached(
        "INSERT INTO main.onlyonce_outbox (id, operation, topic, key, payload, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    insert.execute(params![id, operation, topic, key, payload, now.as_ms()])?;
    Ok(id)
}

/// Adds a message to those that `consumer` has taken; false if it was there. Messages without an id would all be taken for
/// one, and are refused.
pub(super) fn take_message(
    db: &Connection,
    consumer: &str,
    message_id: &str,
    now: StoreTime,
) -> Result<bool, Stop> {
    if consumer.is_empty() || message_id.is_empty() {
        let needed = "a consumer and the id of a message are needed";
        return Err(TransactionError::NotDone(needed.into()).into());
    }
    let mut insert = db.prepare_cached(
        "INSERT INTO main.onlyonce_inbox (consumer, message_id, seen_at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO NOTHING",
    )?;
    Ok(insert.execute(params![consumer, message_id, now.as_ms()])? == 1)
}

/// The version of the tables.
const VERSION: i64 = 1;
const UNANSWERED: &str =
    "the file holds this operation without an answer, which onlyonce never commits";
