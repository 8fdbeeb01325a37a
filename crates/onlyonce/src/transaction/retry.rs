//! Work that is done again after a serialization failure or a deadlock.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::sleep;

use super::parameters::Parameters;
use super::wait::begin_within;
use super::{Begun, Reply, SqlxTx, TransactionError, Transactions};
use crate::Operation;
use crate::sqlstate::is_conflict;
use crate::store::BoxError;

impl Transactions {
    /// Begins `operation`, and does `work` if it is the caller's. The work returns its transaction with the answer, by
    /// [`SqlxTx::completed`] or [`SqlxTx::declined`], and is committed here: nothing is answered that is not committed.
    ///
    /// After a serialization failure or a deadlock the work is done again from its start, in a new transaction, up to five
    /// times. So it may run several times, of which one is committed: it must not call other services. The errors of the work
    /// may be of any type that keeps its cause: of sqlx, of thiserror, of anyhow. One that hides it is passed on.
    ///
    /// # Errors
    /// The error of the work, as [`TransactionError::NotDone`]; else as [`Transactions::begin`] and [`SqlxTx::complete`].
    pub async fn run<F, Fut, E>(
        &self,
        pool: &PgPool,
        operation: &Operation,
        work: F,
    ) -> Result<Begun<Reply>, TransactionError>
    where
        F: Fn(SqlxTx) -> Fut,
        Fut: Future<Output = Result<Worked, E>>,
        E: Into<BoxError>,
    {
        let parameters = Arc::new(Parameters::of(operation));
        let (mut retries, mut wait) = (0, Duration::ZERO);
        loop {
            let error = match self.try_once(pool, &parameters, wait, &work).await {
                Err(TransactionError::NotDone(error))
                    if retries < RETRIES_MAX && is_conflict(&*error) =>
                {
                    error
                }
                ended => return ended,
            };
            tracing::debug!(%error, "the transaction met another; trying again");
            sleep(RETRY_PAUSE * 2_u32.pow(retries)).await;
            (retries, wait) = (retries + 1, OWN_ROLLBACK_WAIT);
        }
    }

    async fn try_once<F, Fut, E>(
        &self,
        pool: &PgPool,
        parameters: &Arc<Parameters>,
        wait: Duration,
        work: &F,
    ) -> Result<Begun<Reply>, TransactionError>
    where
        F: Fn(SqlxTx) -> Fut,
        Fut: Future<Output = Result<Worked, E>>,
        E: Into<BoxError>,
    {
        Ok(match begin_within(&self.statements, pool, parameters, wait).await? {
            Begun::Mine(tx) => {
                let token = tx.operation_id().to_owned();
                let worked =
                    work(tx).await.map_err(|error| TransactionError::NotDone(error.into()))?;
                if worked.tx.operation_id() != token {
                    let other = "the work has returned the transaction of another operation";
                    return Err(TransactionError::EndedByWork(other.into()));
                }
                Begun::Mine(worked.end().await?)
            }
            Begun::Replay(reply) => Begun::Replay(reply),
            Begun::InProgress { retry_after } => Begun::InProgress { retry_after },
            Begun::Reused => Begun::Reused,
        })
    }
}

/// Work that is done, with its transaction and the answer: what [`Transactions::run`] commits.
#[derive(Debug)]
#[must_use = "nothing is committed before `run` has it"]
pub struct Worked {
    tx: SqlxTx,
    reply: Reply,
    is_declined: bool,
}

impl Worked {
    async fn end(self) -> Result<Reply, TransactionError> {
        match self.is_declined {
            true => self.tx.decline(self.reply).await,
            false => self.tx.complete(self.reply).await,
        }
    }
}

impl SqlxTx {
    /// The work is done: [`Transactions::run`] completes it with this answer.
    pub fn completed(self, reply: impl Into<Reply>) -> Worked {
        Worked { tx: self, reply: reply.into(), is_declined: false }
    }

    /// The work is to be undone: [`Transactions::run`] declines it with this answer.
    pub fn declined(self, reply: impl Into<Reply>) -> Worked {
        Worked { tx: self, reply: reply.into(), is_declined: true }
    }
}

pub(super) const RETRIES_MAX: u32 = 5;
/// How long a retry waits for its own rollback: sqlx sends it when the connection is back in its pool.
pub(super) const OWN_ROLLBACK_WAIT: Duration = Duration::from_secs(1);
/// Before the first retry; it doubles.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(5);
