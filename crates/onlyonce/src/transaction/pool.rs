//! Transactions of a sqlx pool that are never left open.

use sqlx::{PgPool, Postgres, Transaction};
use tracing::Instrument;

/// Begins a transaction, by another statement than BEGIN if there is one.
///
/// In a task of its own: sqlx 0.9 notes that a transaction is open only when BEGIN was answered. A caller that is dropped
/// before would give the connection back to the pool with the transaction open, and what others write through it would
/// never be committed. The task goes on without its caller, and drops the transaction, which rolls it back.
pub(crate) async fn begin(
    pool: &PgPool,
    statement: Option<&'static str>,
) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
    let pool = pool.clone();
    let beginning = async move {
        match statement {
            Some(statement) => pool.begin_with(statement).await,
            None => pool.begin().await,
        }
    };
    let begun = tokio::spawn(beginning.in_current_span()).await;
    // A task that has no answer was ended with its runtime.
    begun.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}
