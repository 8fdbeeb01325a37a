//! Transactions of a sqlx pool that are never left open.

use std::time::Duration;

use sqlx::{PgPool, Postgres, SqlSafeStr, Transaction};
use tokio::time::timeout;
use tracing::Instrument;

/// Begins a transaction by this statement, such as BEGIN. A server that does not answer it in time is an error; how long
/// the pool may take to give out a connection is its own setting.
///
/// In a task of its own: sqlx 0.9 notes that a transaction is open only when BEGIN was answered. A caller that is dropped
/// before would give the connection back to the pool with the transaction open, and what others write through it would
/// never be committed. The task goes on without its caller, and drops the transaction, which rolls it back.
pub(crate) async fn begin(
    pool: &PgPool,
    statement: impl SqlSafeStr + Send + 'static,
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let (pool_wait, pool) = (pool.options().get_acquire_timeout(), pool.clone());
    let beginning = async move { pool.begin_with(statement).await };
    let limit = pool_wait.saturating_add(ANSWER_WAIT_MAX);
    match timeout(limit, tokio::spawn(beginning.in_current_span())).await {
        Ok(Ok(begun)) => begun,
        // The task was ended with its runtime.
        Ok(Err(_)) => Err(sqlx::Error::WorkerCrashed),
        Err(elapsed) => Err(sqlx::Error::Io(elapsed.into())),
    }
}

/// How long the server may take to answer a statement of ours.
pub(crate) const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
