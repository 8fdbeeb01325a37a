//! Work that is done again after a serialization failure or a deadlock.

use std::error::Error;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::sleep;

use super::{Begun, Reply, SqlxTx, TransactionError, Transactions};
use crate::Operation;
use crate::store::BoxError;

impl Transactions {
    /// Begins `operation`, and does `work` if it is the caller's. The work ends its transaction by
    /// [`complete`](SqlxTx::complete) or [`decline`](SqlxTx::decline), and returns the answer.
    ///
    /// After a serialization failure or a deadlock it is done again from its start, in a new transaction, up to five times.
    /// So it may run several times, of which one is committed: it must not call other services.
    ///
    /// # Errors
    /// The error of the work, as [`TransactionError::NotDone`]; else as [`Transactions::begin`].
    pub async fn run<F, Fut, E>(
        &self,
        pool: &PgPool,
        operation: &Operation,
        work: F,
    ) -> Result<Begun<Reply>, TransactionError>
    where
        F: Fn(SqlxTx) -> Fut,
        Fut: Future<Output = Result<Reply, E>>,
        E: Into<BoxError>,
    {
        let mut retries = 0;
        loop {
            let error = match self.try_once(pool, operation, &work).await {
                Err(TransactionError::NotDone(error))
                    if retries < RETRIES_MAX && is_conflict(&*error) =>
                {
                    error
                }
                ended => return ended,
            };
            tracing::debug!(%error, "the transaction met another; trying again");
            sleep(RETRY_PAUSE * 2_u32.pow(retries)).await;
            retries += 1;
        }
    }

    async fn try_once<F, Fut, E>(
        &self,
        pool: &PgPool,
        operation: &Operation,
        work: &F,
    ) -> Result<Begun<Reply>, TransactionError>
    where
        F: Fn(SqlxTx) -> Fut,
        Fut: Future<Output = Result<Reply, E>>,
        E: Into<BoxError>,
    {
        Ok(match self.begin(pool, operation).await? {
            Begun::Mine(tx) => Begun::Mine(work(tx).await.map_err(of_work)?),
            Begun::Replay(reply) => Begun::Replay(reply),
            Begun::InProgress { retry_after } => Begun::InProgress { retry_after },
            Begun::Reused => Begun::Reused,
        })
    }
}

/// An error of ours that the work passed on stays what it is; every other one left the transaction rolled back.
fn of_work(error: impl Into<BoxError>) -> TransactionError {
    match error.into().downcast::<TransactionError>() {
        Ok(error) => *error,
        Err(error) => TransactionError::NotDone(error),
    }
}

/// Whether a serialization failure or a deadlock is among the causes.
fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let state =
            error.downcast_ref().and_then(sqlx::Error::as_database_error).and_then(|it| it.code());
        if matches!(state.as_deref(), Some("40001" | "40P01")) {
            return true;
        }
        cause = error.source();
    }
    false
}

const RETRIES_MAX: u32 = 5;
/// Before the first retry; it doubles.
const RETRY_PAUSE: Duration = Duration::from_millis(5);
