//! The tables in the caller's file, and what is read from and written to them.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use sha2::{Digest, Sha256};

use super::Stop;
use crate::clock::StoreTime;
use crate::hex;
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
            None => Err(TransactionError::NotDone(UNANSWERED.into())),
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

/// Adds a message to those that `consumer` has taken; false if it was there.
pub(super) fn take_message(
    db: &Connection,
    consumer: &str,
    message_id: &str,
    now: StoreTime,
) -> rusqlite::Result<bool> {
    let mut insert = db.prepare_cached(
        "INSERT INTO main.onlyonce_inbox (consumer, message_id, seen_at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO NOTHING",
    )?;
    Ok(insert.execute(params![consumer, message_id, now.as_ms()])? == 1)
}

/// The id of an operation: each part with its length in front of it, so that no two operations are hashed from one text.
/// It is the id that the same operation has in Postgres.
pub(super) fn operation_id(asked: &Parameters) -> String {
    let mut text = "onlyonce transaction 1".to_owned();
    for part in [&asked.scope, &asked.principal, &asked.key] {
        text += &format!(" {}:{part}", part.len());
    }
    let digest: [u8; 32] = Sha256::digest(text).into();
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    uuid_text(id)
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let digits = hex::encode(&bytes);
    let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    groups.join("-")
}

/// The version of the tables.
const VERSION: i64 = 1;
const UNANSWERED: &str = "the file holds this operation without an answer, which onlyonce never commits: \
     find out what wrote it, and whether the work was done, before you delete its row";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_the_id_that_it_has_in_postgres() {
        let asked = Parameters {
            scope: "POST /charges".to_owned(),
            principal: "acct_ü".to_owned(),
            key: "order-4711".to_owned(),
            fingerprint: Vec::new(),
            ttl_ms: 0.0,
        };
        assert_eq!(operation_id(&asked), "34ff4c66-aaf9-e349-1b35-23e2c54e5e87");
    }
}
