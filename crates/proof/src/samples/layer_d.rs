//! Sample D: one table in SQLite, and a row that stays pending when its process dies.

use std::path::Path;
use std::sync::Mutex;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::charges::Charges;
use super::{Asked, Reply, SampleError, layer_b};

pub(super) struct Sqlite(Mutex<Connection>);

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self, SampleError> {
        let connection = Connection::open(path)?;
        connection.execute_batch(TABLE)?;
        Ok(Self(Mutex::new(connection)))
    }

    pub(super) async fn handle(
        &self,
        asked: &Asked,
        charges: &Charges,
    ) -> Result<Reply, SampleError> {
        // The defect: 64 bits of the hash.
        let hash = layer_b::hash(&asked.order.body)[..16].to_owned();
        if let Some(reply) = self.claim(&asked.key, &hash)? {
            return Ok(reply);
        }
        // The defect: an exception, a crash and a client that leaves all let the row be pending for ever.
        let reply = charges.charge(&asked.order).await?;
        self.locked()?.execute(COMPLETE, (&reply.body.to_string(), &asked.key))?;
        Ok(reply)
    }

    /// Claims the key, or answers from its row.
    fn claim(&self, key: &str, hash: &str) -> Result<Option<Reply>, SampleError> {
        let mut connection = self.locked()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let row = transaction
            .query_row(SELECT, [key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let row: Option<(String, Option<String>)> = row;
        let reply = match row {
            Some((first, _)) if first != hash => {
                Some(Reply::refused(409, "the key was used for another request"))
            }
            Some((_, None)) => Some(Reply::refused(409, "the first request is still running")),
            // The defect: always 200, whatever the first got.
            Some((_, Some(body))) => Some(Reply::new(200, serde_json::from_str(&body)?)),
            None => {
                transaction.execute(INSERT, [key, hash])?;
                None
            }
        };
        transaction.commit()?;
        Ok(reply)
    }

    fn locked(&self) -> Result<std::sync::MutexGuard<'_, Connection>, SampleError> {
        self.0.lock().map_err(|_| "a request panicked".into())
    }
}

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS sample_d (key text PRIMARY KEY, hash text NOT NULL, body text)";
const SELECT: &str = "SELECT hash, body FROM sample_d WHERE key = ?1";
const INSERT: &str = "INSERT INTO sample_d (key, hash) VALUES (?1, ?2)";
const COMPLETE: &str = "UPDATE sample_d SET body = ?1 WHERE key = ?2";
