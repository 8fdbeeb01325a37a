//! A duplicate that waits for the answer of the first caller, without a connection.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{Instant, sleep, timeout_at};

use super::over_sqlx::begin;
use super::parameters::Parameters;
use super::statements::Statements;
use super::{Begun, SqlxTx, TransactionError, Transactions};
use crate::Operation;

impl Transactions {
    /// Begins `operation` as [`begin`](Self::begin) does, and asks again while another transaction is at it: the answer of
    /// that one, or the operation itself if that one was rolled back. After `wait` it is [`Begun::InProgress`].
    ///
    /// Who waits has no connection in between: each question is a short transaction of its own, every 10 ms at first and
    /// every half second at last.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    // Not by LISTEN and NOTIFY: a COMMIT with a NOTIFY takes a lock on the whole server, every process would hold one more
    // connection, and no listener works through a pooler that gives out connections by the transaction.
    pub async fn begin_within(
        &self,
        pool: &PgPool,
        operation: &Operation,
        wait: Duration,
    ) -> Result<Begun<SqlxTx>, TransactionError> {
        begin_within(&self.statements, pool, &Arc::new(Parameters::of(operation)), wait).await
    }
}

pub(super) async fn begin_within(
    statements: &Arc<Statements>,
    pool: &PgPool,
    parameters: &Arc<Parameters>,
    wait: Duration,
) -> Result<Begun<SqlxTx>, TransactionError> {
    let end = Instant::now() + wait.min(WAIT_MAX);
    let mut pause = PAUSE_MIN;
    let mut begun = begin(statements, pool, parameters.clone()).await?;
    while let Begun::InProgress { retry_after } = begun {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(begun);
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(PAUSE_MAX);
        // Dropped, a transaction that has begun is rolled back. The pool may make it wait for a connection.
        begun = match timeout_at(end + LAST_ASK_MAX, begin(statements, pool, parameters.clone()))
            .await
        {
            Ok(begun) => begun?,
            Err(_) => return Ok(Begun::InProgress { retry_after }),
        };
    }
    Ok(begun)
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long the last question may take after the wait is over.
const LAST_ASK_MAX: Duration = Duration::from_millis(500);
/// A wait without a bound is bounded.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
