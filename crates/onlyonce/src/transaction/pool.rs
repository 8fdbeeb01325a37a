//! Transactions of a sqlx pool that are never left open.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::{Database, PgConnection, PgPool, Postgres, SqlSafeStr, Transaction};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::timeout;
use tracing::Instrument;

/// A transaction with all that is nested in it.
///
/// sqlx counts nested transactions on the connection, and ends the innermost one that it counts. After work that has forgotten
/// one (`std::mem::forget`), its own `commit` would release a savepoint and say that all is well, and its rollback would give
/// the connection back to the pool with the transaction open, for others to write into.
pub(crate) struct Whole(Option<Transaction<'static, Postgres>>);

impl Whole {
    /// Begins a transaction by this statement, such as BEGIN. A server that does not answer it in time is an error; how long
    /// the pool may take to give out a connection is its own setting.
    ///
    /// In a task of its own: sqlx 0.9 notes that a transaction is open only when BEGIN was answered. A caller that is dropped
    /// before would give the connection back to the pool with the transaction open, and what others write through it would
    /// never be committed. The task goes on without its caller, and drops the transaction, which rolls it back.
    pub(crate) async fn begin(
        pool: &PgPool,
        statement: impl SqlSafeStr + Send + 'static,
    ) -> Result<Self, sqlx::Error> {
        let (pool_wait, pool) = (pool.options().get_acquire_timeout(), pool.clone());
        let beginning = async move { pool.begin_with(statement).await };
        let limit = pool_wait.saturating_add(ANSWER_WAIT_MAX);
        match timeout(limit, tokio::spawn(beginning.in_current_span())).await {
            Ok(Ok(begun)) => begun.map(|begun| Self(Some(begun))),
            // The task was ended with its runtime.
            Ok(Err(_)) => Err(sqlx::Error::WorkerCrashed),
            Err(elapsed) => Err(sqlx::Error::Io(elapsed.into())),
        }
    }

    /// Whether the work has left a nested transaction open, so that nothing can be committed: drop it then.
    pub(crate) fn has_nested(&self) -> bool {
        depth(self) > 1
    }

    /// Commits what has [nothing nested](Self::has_nested) in it.
    pub(crate) async fn commit(mut self) -> Result<(), sqlx::Error> {
        self.0.take().expect(IS_OPEN).commit().await
    }

    pub(crate) async fn rollback(mut self) -> Result<(), sqlx::Error> {
        end_nested(&mut self);
        self.0.take().expect(IS_OPEN).rollback().await
    }
}

impl Deref for Whole {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.0.as_ref().expect(IS_OPEN)
    }
}

impl DerefMut for Whole {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect(IS_OPEN)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if self.0.is_some() {
            end_nested(self);
        }
    }
}

/// Lets sqlx roll back what is nested, when it next uses the connection: the rollback after that is of the whole.
fn end_nested(connection: &mut PgConnection) {
    while depth(connection) > 1 {
        Manager::start_rollback(connection);
    }
}

/// How many transactions sqlx counts on the connection, one in the other.
fn depth(connection: &PgConnection) -> usize {
    Manager::get_transaction_depth(connection)
}

type Manager = <Postgres as Database>::TransactionManager;
const IS_OPEN: &str = "it is there until it is ended";
/// Why work that has left a nested transaction open is not committed.
pub(crate) const LEFT_OPEN: &str =
    "the work has left a nested transaction open: commit it or roll it back";
/// Whatever the default is: for transactions that are ours alone. Under a higher level they fail where they meet others, and do
/// not see what was committed while they waited.
pub(crate) const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// By the default of the database: for transactions in which the caller works.
pub(crate) const BY_DEFAULT: &str = "BEGIN";
/// Whether the default is a higher one, as an expression with full names: it is asked in sessions of the caller's.
pub(crate) const IS_ABOVE_READ_COMMITTED: &str =
    "pg_catalog.current_setting('default_transaction_isolation')
       OPERATOR(pg_catalog.<>) ALL (ARRAY['read committed', 'read uncommitted'])";
/// How long the server may take to answer a statement of ours.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
