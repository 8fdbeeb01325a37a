//! Operations in transactions of the caller's own SQLite file, through rusqlite.
//!
//! 1. The tables are in the caller's file: [`Transactions::prepare`] makes them.
//! 2. A completed operation is replayed without the write lock. Every other one takes it (`BEGIN IMMEDIATE`): SQLite has
//!    one writer at a time, and who does not get the lock within the connection's `busy_timeout` gets
//!    [`Begun::InProgress`].
//! 3. The connection must commit durably and enforce foreign keys; another one is refused with
//!    [`TransactionError::Setting`]. A foreign key makes SQLite refuse a COMMIT without an answer.

pub(crate) mod settings;
mod tables;

use std::ops::Deref;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use self::tables::Held;
use super::parameters::Parameters;
use super::{Begun, RETRY_AFTER, Reply, TransactionError, Transactions};
use crate::Operation;
use crate::clock::{Clock, StoreTime, SystemClock};

impl Transactions {
    /// Makes the tables of onlyonce in the file of `connection` if there are none. Call it at the start of the program,
    /// outside of a transaction.
    ///
    /// # Errors
    /// [`TransactionError::OtherVersion`] if another version has made them; else nothing was done.
    pub fn prepare(&self, connection: &Connection) -> Result<(), TransactionError> {
        tables::prepare(connection).map_err(TransactionError::from)
    }

    /// Begins `operation` in a new transaction of `connection`. It waits for another writer as long as the connection's
    /// `busy_timeout` says; then it is [`Begun::InProgress`], even if that writer does something else.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::StatusCode;
    /// use onlyonce::transaction::{Begun, Reply, Transactions};
    /// use onlyonce::{Operation, scope::Principal};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let file = directory.path().join("shop.db");
    /// let mut db = rusqlite::Connection::open(file)?;
    /// db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")?;
    /// # db.execute_batch("CREATE TABLE charge (operation TEXT UNIQUE, amount INTEGER)")?;
    /// let transactions = Transactions::new();
    /// transactions.prepare(&db)?;
    /// let charge = Operation::new("POST /charges", Principal::of("account", b"acct_1"), "order-4711")?
    ///     .with_payload(&7998)?;
    /// for _ in 0..2 {
    ///     let reply = match transactions.begin_in(&mut db, &charge)? {
    ///         Begun::Mine(tx) => {
    ///             tx.execute("INSERT INTO charge VALUES (?1, 7998)", [tx.operation_id()])?;
    ///             tx.complete(Reply::new(StatusCode::CREATED, "charged"))?
    ///         }
    ///         Begun::Replay(reply) => reply,
    ///         Begun::InProgress { .. } => Reply::new(StatusCode::CONFLICT, "try again"),
    ///         Begun::Reused => Reply::new(StatusCode::UNPROCESSABLE_ENTITY, "another amount"),
    ///     };
    ///     assert_eq!(reply.body, "charged");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read or written, has not the tables, or the connection is not set up for it: see
    /// [`TransactionError`].
    pub fn begin_in<'a>(
        &self,
        connection: &'a mut Connection,
        operation: &Operation,
    ) -> Result<Begun<SqliteTx<'a>>, TransactionError> {
        match begin(connection, &Parameters::of(operation)) {
            Ok(begun) => Ok(begun),
            Err(Stop::Busy(_)) => Ok(Begun::InProgress { retry_after: RETRY_AFTER }),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Whether `consumer` sees a message for the first time. Call it in the transaction of the effect; a duplicate is
    /// acknowledged without effect. `message_id` must be the same at every delivery.
    ///
    /// # Errors
    /// As [`Transactions::begin_in`]. Roll back then.
    pub fn is_first_delivery_in(
        &self,
        transaction: &Transaction<'_>,
        consumer: &str,
        message_id: &str,
    ) -> Result<bool, TransactionError> {
        let take = || {
            require_transaction(transaction)?;
            settings::check_writing(transaction)?;
            tables::require_version(transaction)?;
            tables::take_message(transaction, consumer, message_id, SystemClock.wall())
        };
        take().map_err(|stop: Stop| stop.into())
    }
}

/// A transaction that has begun an operation. It is a connection for the caller's own statements; dropped, it is
/// rolled back and the key is free.
///
/// The work must not end the transaction. SQLite refuses its COMMIT, unless the work has deleted rows whose foreign key was
/// broken before (a retry is [`TransactionError::WithoutAnswer`] then); and [`complete`](Self::complete) notices a ROLLBACK; but
/// what the work writes *after* its own ROLLBACK is committed by SQLite at once, and stays. An error may roll back, too:
/// a full disk, `INSERT OR ROLLBACK`, `RAISE(ROLLBACK, …)`. So end the work at the first error of SQLite.
// There is no `DerefMut`: with it the work could set the transaction to commit when it is dropped.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct SqliteTx<'a> {
    transaction: Transaction<'a>,
    id: String,
    ttl_ms: i64,
}

impl SqliteTx<'_> {
    /// Keeps the answer and commits: the work, its messages and the answer, or nothing.
    ///
    /// # Errors
    /// [`TransactionError::Unsure`] if the disk failed at the commit: begin again with the same key. After every other
    /// error nothing was committed, but for what the work wrote after it ended the transaction by itself.
    pub fn complete(self, reply: impl Into<Reply>) -> Result<Reply, TransactionError> {
        let reply = reply.into();
        self.require_open()?;
        let expires_at = SystemClock.wall().plus_ms(self.ttl_ms);
        tables::complete(&self.transaction, &self.id, &reply, expires_at).map_err(failed)?;
        self.commit()?;
        Ok(reply)
    }

    /// Undoes the work and keeps the answer, for a refusal that every duplicate shall get.
    ///
    /// # Errors
    /// As [`SqliteTx::complete`].
    pub fn decline(self, reply: impl Into<Reply>) -> Result<Reply, TransactionError> {
        self.require_open()?;
        self.transaction.execute_batch(UNDO).map_err(failed)?;
        self.complete(reply)
    }

    /// Adds a message to the operation, and returns its id. Messages have the order of the commits.
    ///
    /// # Errors
    /// As [`Transactions::begin_in`].
    pub fn outbox(
        &self,
        topic: &str,
        key: Option<&str>,
        payload: &[u8],
    ) -> Result<String, TransactionError> {
        self.require_open()?;
        let message = (topic, key, payload);
        let added = tables::add_message(&self.transaction, &self.id, message, SystemClock.wall());
        added.map_err(TransactionError::from)
    }

    /// The operation's id: the same at every attempt. As a unique column of the business table it is the last line of
    /// defence.
    pub fn operation_id(&self) -> &str {
        &self.id
    }

    /// The work may have ended the transaction, and begun another one.
    fn require_open(&self) -> Result<(), TransactionError> {
        require_transaction(&self.transaction)?;
        if tables::is_open(&self.transaction, &self.id).map_err(failed)? {
            return Ok(());
        }
        Err(TransactionError::EndedByWork(
            "the open transaction has not begun the operation".into(),
        ))
    }

    fn commit(self) -> Result<(), TransactionError> {
        let Err(error) = self.transaction.execute_batch("COMMIT") else {
            return Ok(());
        };
        // If SQLite refuses to commit, it leaves the transaction open; this one is rolled back when it is dropped. If
        // it has tried and failed, there is no transaction any more, and a write may have reached the disk.
        let is_refused = !self.transaction.is_autocommit()
            || error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
        if is_refused {
            return Err(failed(error));
        }
        Err(TransactionError::Unsure { token: self.id, error: error.into() })
    }
}

impl<'a> Deref for SqliteTx<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}

fn begin<'a>(
    connection: &'a mut Connection,
    asked: &Parameters,
) -> Result<Begun<SqliteTx<'a>>, Stop> {
    if !connection.is_autocommit() {
        return Err(TransactionError::NotDone(ALREADY_OPEN.into()).into());
    }
    let id = asked.operation_id();
    settings::check_reading(connection)?;
    // Read first: a replay needs no lock.
    if let Some(begun) = settled(connection, &id, asked, SystemClock.wall())? {
        return Ok(begun);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    settings::check_writing(&transaction)?;
    // Again: it may have been completed between the first read and the lock.
    let now = SystemClock.wall();
    if let Some(begun) = settled(&transaction, &id, asked, now)? {
        return Ok(begun);
    }
    tables::insert(&transaction, &id, asked, now)?;
    transaction.execute_batch(SAVEPOINT)?;
    Ok(Begun::Mine(SqliteTx { transaction, id, ttl_ms: asked.ttl_ms as i64 }))
}

/// What became of the operation; `None` if it is free.
fn settled<T>(
    db: &Connection,
    id: &str,
    asked: &Parameters,
    now: StoreTime,
) -> Result<Option<Begun<T>>, Stop> {
    match Held::read(db, id)? {
        Some(held) => Ok(held.outcome(&asked.fingerprint, now)?),
        None => Ok(None),
    }
}

fn require_transaction(db: &Connection) -> Result<(), TransactionError> {
    if db.is_autocommit() {
        return Err(TransactionError::EndedByWork("there is no open transaction".into()));
    }
    Ok(())
}

/// Why a step was not done.
pub(crate) enum Stop {
    /// Another connection has the lock.
    Busy(rusqlite::Error),
    Failed(TransactionError),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy(error),
            _ => Self::Failed(failed(error)),
        }
    }
}

impl From<TransactionError> for Stop {
    fn from(error: TransactionError) -> Self {
        Self::Failed(error)
    }
}

impl From<Stop> for TransactionError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Busy(error) => Self::NotDone(error.into()),
            Stop::Failed(error) => error,
        }
    }
}

pub(super) fn failed(error: rusqlite::Error) -> TransactionError {
    // SQLite has no code for it.
    if error.to_string().contains("no such table: main.onlyonce_") {
        return TransactionError::NotInstalled(error.into());
    }
    TransactionError::NotDone(error.into())
}

const ALREADY_OPEN: &str =
    "the connection has an open transaction: commit it or roll it back first";
/// The writes after this point are undone by [`UNDO`]; the begun operation stays.
const SAVEPOINT: &str = "SAVEPOINT onlyonce_work";
const UNDO: &str = "ROLLBACK TO onlyonce_work";
