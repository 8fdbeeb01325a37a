//! Steps in the caller's own SQLite file, through rusqlite.

pub(super) mod tables;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::tables::Fault;
use super::database::{Change, Chosen, CommitError, Database, Due, InsertError, Journal};
use super::error::StepsError;
use super::held::{Draft, Guard, Held, Next};
use super::lent::Lent;
use super::stopped::Reason;
use crate::record::Token;
use crate::store::BoxError;
use crate::transaction::Transactions;

/// A SQLite file, through a connection of the caller. Steps, renewals and the completer take turns on it; open another
/// connection for everything else. Give it a `busy_timeout`: SQLite has one writer at a time.
#[derive(Clone)]
pub struct SqliteDatabase {
    connection: Arc<Mutex<Connection>>,
}

impl SqliteDatabase {
    /// Makes the tables of onlyonce in the file of `connection` if there are none.
    ///
    /// # Errors
    /// [`StepsError::OtherVersion`] if another version has made them.
    pub fn new(connection: Connection) -> Result<Self, StepsError> {
        // The outbox is there.
        let prepared = Transactions::new().prepare(&connection);
        prepared.map_err(|error| StepsError::Database(error.into()))?;
        tables::prepare(&connection)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Uses the connection on a thread that may block.
    async fn on<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StepsError> {
        let connection = turn(&self.connection).await?;
        let worked = spawn_blocking(move || work(&connection)).await;
        let worked = worked.map_err(|error| StepsError::Database(error.into()))?;
        worked.map_err(StepsError::from)
    }
}

impl Database for SqliteDatabase {
    type Tx = SqliteStep;
}

impl Journal for SqliteDatabase {
    type Work = SqliteWork;

    /// There is one writer at a time: nobody renews meanwhile.
    async fn works_on_snapshots(&self) -> Result<bool, StepsError> {
        Ok(false)
    }

    async fn load(&self, id: &str) -> Result<Option<Held>, StepsError> {
        let id = id.to_owned();
        self.on(move |db| tables::load(db, &id)).await
    }

    async fn insert(
        &self,
        draft: &Draft,
        token: Token,
        lease_ms: i64,
        expired: Option<i64>,
    ) -> Result<bool, InsertError> {
        let connection = turn(&self.connection).await.map_err(InsertError::NotMade)?;
        let draft = draft.clone();
        let inserted = spawn_blocking(move || {
            tables::written(&connection, |db| tables::insert(db, &draft, token, lease_ms, expired))
        });
        let inserted = inserted.await.map_err(|error| InsertError::Unsure(error.into()))?;
        inserted.map_err(|fault| match fault {
            Fault::Unsure(error) => InsertError::Unsure(error.into()),
            fault => InsertError::NotMade(fault.into()),
        })
    }

    async fn swap(&self, id: &str, guard: Guard, next: &Next) -> Result<bool, StepsError> {
        let (id, next) = (id.to_owned(), next.clone());
        self.on(move |db| tables::written(db, |db| tables::swap(db, &id, guard, &next))).await
    }

    async fn renew(&self, id: &str, owner: Token, lease_ms: i64) -> Result<bool, StepsError> {
        let id = id.to_owned();
        self.on(move |db| tables::written(db, |db| tables::renew(db, &id, owner, lease_ms))).await
    }

    async fn take_due(
        &self,
        names: &[String],
        passed_over: Vec<String>,
        rows_max: usize,
        choose: impl Fn(&Held) -> Option<Chosen> + Send,
    ) -> Result<Due, StepsError> {
        let names = names.to_vec();
        let due = self.on(move |db| tables::due(db, &names, &passed_over, rows_max)).await?;
        let (mut chosen, mut unreadable) = (Vec::new(), Vec::new());
        for held in due {
            match held {
                Ok(held) => chosen.extend(choose(&held).map(|chosen| (held, chosen))),
                Err(error) => unreadable.push(error),
            }
        }
        let taken = match chosen.is_empty() {
            true => Vec::new(),
            // Another one may have written since they were read: the revision tells.
            false => self.on(move |db| tables::written(db, |db| tables::take(db, chosen))).await?,
        };
        Ok(Due { taken, unreadable })
    }

    async fn begin(&self, _: &str, _: usize) -> Result<SqliteWork, Reason> {
        let connection = turn(&self.connection).await;
        let connection = connection.map_err(|error| Reason::Failed(error.into()))?;
        let begun = spawn_blocking(move || {
            tables::begin(&connection)?;
            Ok(SqliteWork(connection))
        });
        match begun.await {
            Ok(Ok(work)) => Ok(work),
            Ok(Err(Fault::Busy(error))) => Err(Reason::Conflict(error.into())),
            Ok(Err(fault)) => Err(Reason::Failed(StepsError::from(fault).into())),
            Err(error) => Err(Reason::Failed(error.into())),
        }
    }

    async fn commit(
        &self,
        id: &str,
        guard: Guard,
        change: &Change,
        work: Option<SqliteWork>,
    ) -> Result<(), CommitError> {
        let work = match work {
            Some(work) => work,
            None => self.begin(id, 0).await.map_err(|reason| match reason {
                Reason::Conflict(error) | Reason::Failed(error) => CommitError::Conflict(error),
                _ => CommitError::Stale,
            })?,
        };
        let (id, change) = (id.to_owned(), change.clone());
        let committed = spawn_blocking(move || commit(&work, &id, guard, &change)).await;
        committed.unwrap_or_else(|error| Err(CommitError::Unsure(error.into())))
    }

    async fn has_ended(&self, work: SqliteWork) -> bool {
        work.0.is_autocommit()
    }

    fn is_conflict(error: &BoxError) -> bool {
        error.downcast_ref::<rusqlite::Error>().is_some_and(is_busy)
    }
}

/// The connection, when nobody else uses it any more.
pub(super) async fn turn(
    connection: &Arc<Mutex<Connection>>,
) -> Result<OwnedMutexGuard<Connection>, StepsError> {
    let turn = timeout(TURN_WAIT_MAX, connection.clone().lock_owned()).await;
    turn.map_err(|elapsed| StepsError::Database(elapsed.into()))
}

fn commit(work: &SqliteWork, id: &str, guard: Guard, change: &Change) -> Result<(), CommitError> {
    let db = &*work.0;
    if db.is_autocommit() {
        return Err(CommitError::EndedByWork(ENDED.into()));
    }
    let is_written = tables::change(db, id, guard, change).map_err(unsure)?;
    if !is_written {
        return Err(CommitError::Stale);
    }
    // If SQLite refuses it, the transaction is open still, and is rolled back when it is dropped.
    db.execute_batch("COMMIT").map_err(unsure)
}

fn unsure(error: rusqlite::Error) -> CommitError {
    match is_busy(&error) {
        true => CommitError::Conflict(error.into()),
        false => CommitError::Unsure(error.into()),
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// An open transaction of a step. Dropped, it is rolled back.
pub(super) struct SqliteWork(OwnedMutexGuard<Connection>);

impl Drop for SqliteWork {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = self.0.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a transaction was not rolled back");
        }
    }
}

/// The transaction of a step: a connection for the caller's own statements. The step is committed after the work has dropped
/// it.
///
/// The work must not end the transaction: the operation is unknown then. An error of SQLite may end it, too (a full disk,
/// `INSERT OR ROLLBACK`), and cannot be told from a COMMIT.
#[derive(Debug)]
pub struct SqliteStep {
    id: String,
    work: Lent<SqliteWork>,
}

impl SqliteStep {
    /// Adds a message to the outbox, in the commit of the step, and returns its id. Messages have the order of the commits.
    ///
    /// # Errors
    /// If the file does not take it.
    pub fn outbox(
        &self,
        topic: &str,
        key: Option<&str>,
        payload: &[u8],
    ) -> Result<String, BoxError> {
        if self.is_autocommit() {
            return Err(ENDED.into());
        }
        Ok(tables::add_message(self, &self.id, (topic, key, payload))?)
    }

    /// The operation's id: the same in every run.
    pub fn operation_id(&self) -> &str {
        &self.id
    }
}

#[doc(hidden)]
impl From<(String, Lent<SqliteWork>)> for SqliteStep {
    fn from((id, work): (String, Lent<SqliteWork>)) -> Self {
        Self { id, work }
    }
}

impl Deref for SqliteStep {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.work.0
    }
}

impl fmt::Debug for SqliteDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteDatabase").finish_non_exhaustive()
    }
}

/// How long a step of another operation may keep the connection before an attempt that waits for it fails.
const TURN_WAIT_MAX: Duration = Duration::from_secs(35);
const ENDED: &str = "the work has ended the transaction of its step";

#[cfg(test)]
mod tests;
