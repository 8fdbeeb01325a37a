//! A handler that has never taken its transaction: what it did is not part of it, and is not undone by a rollback.
//!
//! Such a route is not exactly once. It is at most once where that is possible: the handler is not run again, and an outcome
//! that nobody knows is kept, so that no retry runs it either.

use http::{Response, StatusCode};
use tokio::time::sleep;

use super::answer::{Answer, Ending, NoAnswer, stored};
use super::work::{Work, roll_back};
use crate::http::{Body, problem};
use crate::once::Refusal;
use crate::problem::Problem;
use crate::record::Kept;
use crate::sqlstate::is_conflict;
use crate::transaction::over_sqlx::keep;
use crate::transaction::retry::{RETRIES_MAX, RETRY_PAUSE};
use crate::transaction::{Reply, SqlxTx, TransactionError};

impl Work {
    /// Keeps the answer, or that there is none.
    pub(super) async fn end_without_tx(
        &self,
        tx: SqlxTx,
        called: Result<Answer, NoAnswer>,
    ) -> Response<Body> {
        let operation = tx.operation_id().to_owned();
        let (reply, fresh) = match called {
            Ok(answer) if answer.ending == Ending::RollBack => {
                roll_back(tx).await;
                return answer.into_response();
            }
            Ok(answer) => (answer.reply(), answer.into_response()),
            Err(no_answer) => {
                tracing::error!(
                    error = &no_answer as &dyn std::error::Error,
                    operation,
                    "the handler did not take its Tx, so nothing of it was undone: the outcome is unknown"
                );
                self.unknown(&no_answer)
            }
        };
        match self.keep(tx, &reply).await {
            Ok(kept) if kept == reply => fresh,
            Ok(other) => self.refused(&Refusal::Replay(stored(other))),
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    operation,
                    "the handler did not take its Tx, and its answer is not kept: a retry runs it again"
                );
                self.told(Problem::may_have_run(StatusCode::BAD_GATEWAY))
            }
        }
    }

    /// The answer for a caller whose operation may have been executed, and the same to be kept.
    fn unknown(&self, no_answer: &NoAnswer) -> (Reply, Response<Body>) {
        let status = match no_answer {
            NoAnswer::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        let problem = Problem::may_have_run(status).about_key(self.asked.key.as_str());
        let record = problem.record(&self.rules.policy);
        let body = match &record.body {
            Kept::Bytes { body, .. } => body.clone(),
            Kept::No(_) | Kept::Sealed(_) => bytes::Bytes::new(),
        };
        let fresh = problem::own(&record);
        (Reply { status: record.status, headers: record.headers, body }, fresh)
    }

    /// Keeps an answer; after a conflict in another transaction, without another run.
    async fn keep(&self, tx: SqlxTx, reply: &Reply) -> Result<Reply, TransactionError> {
        let (statements, pool) = (&self.rules.statements, &self.rules.pool);
        let mut ended = tx.complete(reply.clone()).await;
        for retry in 0..RETRIES_MAX {
            match &ended {
                Err(error) if is_conflict(error) => {}
                _ => break,
            }
            sleep(RETRY_PAUSE * 2_u32.pow(retry)).await;
            ended = keep(statements, pool, self.asked.parameters.clone(), reply.clone()).await;
        }
        ended
    }
}
