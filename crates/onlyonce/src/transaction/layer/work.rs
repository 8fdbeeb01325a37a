//! One operation: its transaction is begun, the handler works on it, and its answer ends it.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tower_service::Service;

use super::Rules;
use super::answer::{Answer, Ending, NoAnswer, stored};
use super::doubts::{Doubtful, Doubts};
use super::slot::Slot;
use super::told::{not_begun, not_completed};
use crate::Attempt;
use crate::http::for_caller::origin;
use crate::http::request::{Whole, is_respelled};
use crate::http::{Body, headers, problem};
use crate::key::Key;
use crate::once::Refusal;
use crate::problem::Problem;
use crate::scope::{OperationId, Principal};
use crate::sqlstate::is_conflict;
use crate::store::BoxError;
use crate::transaction::over_sqlx::begin_to_keep;
use crate::transaction::parameters::Parameters;
use crate::transaction::retry::{OWN_ROLLBACK_WAIT, RETRIES_MAX, RETRY_PAUSE};
use crate::transaction::state::{State, is_aborted, may_be_conflict, state};
use crate::transaction::wait::begin_within;
use crate::transaction::{Begun, Reply, SqlxTx, TransactionError};

/// What a request asks for.
pub(super) struct Asked {
    pub(super) head: Parts,
    pub(super) body: Whole,
    pub(super) key: Key,
    pub(super) id: OperationId,
    pub(super) who: Principal,
    pub(super) parameters: Arc<Parameters>,
}

pub(super) struct Work {
    pub(super) rules: Arc<Rules>,
    pub(super) asked: Asked,
}

/// How an attempt ended.
pub(super) enum Attempted {
    Ended(Response<Body>),
    /// It met other transactions, or may have. The answer is for a caller whose attempts are used up.
    Conflict(Response<Body>),
}

impl Work {
    /// Attempts the operation until it has not met another transaction.
    pub(super) async fn run<S, A>(self, mut inner: S, tx: SqlxTx) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<A>> + Send,
        S::Error: Into<BoxError>,
        A: http_body::Body<Data = Bytes>,
        A::Error: Into<BoxError>,
    {
        let (mut retries, mut doubts) = (0, Doubts::default());
        let mut begun: Result<_, Box<Attempted>> = Ok(tx);
        loop {
            let attempted = match begun {
                Ok(tx) => match self.attempt(&mut inner, tx, retries + 1).await {
                    Ok(attempted) => attempted,
                    Err(it) if doubts.are_dispelled_by(it.reply.status) => {
                        self.decline(&it.reply, it.response).await
                    }
                    Err(_) => self.conflict(),
                },
                Err(stopped) => *stopped,
            };
            match attempted {
                Attempted::Conflict(_) if retries < RETRIES_MAX => {}
                Attempted::Ended(response) | Attempted::Conflict(response) => return response,
            }
            tracing::debug!("the transaction met another; running the handler again");
            sleep(RETRY_PAUSE * 2_u32.pow(retries)).await;
            retries += 1;
            begun = self.begin_again().await;
        }
    }

    /// The next transaction of the operation, unless another request has it now.
    async fn begin_again(&self) -> Result<SqlxTx, Box<Attempted>> {
        let (statements, pool) = (&self.rules.statements, &self.rules.pool);
        self.begun(begin_within(statements, pool, &self.asked.parameters, OWN_ROLLBACK_WAIT).await)
    }

    async fn attempt<S, A>(
        &self,
        inner: &mut S,
        tx: SqlxTx,
        number: u32,
    ) -> Result<Attempted, Box<Doubtful>>
    where
        S: Service<Request<Body>, Response = Response<A>> + Send,
        S::Error: Into<BoxError>,
        A: http_body::Body<Data = Bytes>,
        A::Error: Into<BoxError>,
    {
        let token = tx.operation_id().to_owned();
        let (began, slot) =
            (Instant::now(), Slot::new(self.asked.id, self.rules.tables.clone(), tx));
        let called = self.call(inner, slot.clone(), &token, number).await;
        let Some(tx) = slot.close() else {
            tracing::error!(
                operation = token,
                "the handler kept its Tx beyond its answer: nothing is committed"
            );
            let why = "The service kept its transaction beyond its answer.";
            return Ok(Attempted::Ended(self.told(Problem::rolled_back(FAILED, why))));
        };
        Ok(match called {
            called if !slot.was_taken() => Attempted::Ended(self.end_without_tx(tx, called).await),
            Ok(answer) => return self.end(tx, answer, began.elapsed()).await,
            Err(no_answer) => self.give_up(tx, &no_answer, began.elapsed()).await,
        })
    }

    /// The transaction, if the operation is the caller's.
    pub(super) fn begun(
        &self,
        begun: Result<Begun<SqlxTx>, TransactionError>,
    ) -> Result<SqlxTx, Box<Attempted>> {
        Err(Box::new(Attempted::Ended(match begun {
            Ok(Begun::Mine(tx)) => return Ok(tx),
            Ok(Begun::Replay(reply)) => self.refused(&Refusal::Replay(stored(reply))),
            Ok(Begun::InProgress { .. }) => self.refused(&Refusal::InProgress),
            // The database says no more than that the fingerprints differ.
            Ok(Begun::Reused) if is_respelled(&self.rules.policy, &self.asked.head) => {
                self.refused(&Refusal::Respelled)
            }
            Ok(Begun::Reused) => self.refused(&Refusal::Reused),
            Err(error) if is_conflict(&error) => {
                return Err(Box::new(self.conflict()));
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "cannot begin a transaction"
                );
                self.told(not_begun(&error))
            }
        })))
    }

    /// Calls the handler, within the route's time, and reads its whole answer.
    async fn call<S, A>(
        &self,
        inner: &mut S,
        slot: Arc<Slot>,
        token: &str,
        number: u32,
    ) -> Result<Answer, NoAnswer>
    where
        S: Service<Request<Body>, Response = Response<A>> + Send,
        S::Error: Into<BoxError>,
        A: http_body::Body<Data = Bytes>,
        A::Error: Into<BoxError>,
    {
        let policy = &self.rules.policy;
        let mut head = self.asked.head.clone();
        headers::for_inner(&mut head.headers, number);
        // The database's own id, so that a derived key is the same for callers without the layer.
        if let Ok(id) = token.replace('-', "").parse() {
            head.extensions.insert(Attempt { number, id });
        }
        head.extensions.insert(self.asked.key.clone());
        head.extensions.insert(slot);
        let request = Request::from_parts(head, self.asked.body.body());
        let answering = async {
            if number > 1 {
                poll_fn(|cx| inner.poll_ready(cx)).await.map_err(failed)?;
            }
            Answer::read(inner.call(request).await.map_err(failed)?, policy).await
        };
        let answering = AssertUnwindSafe(answering).catch_unwind();
        match timeout(policy.upstream_timeout(), answering).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(NoAnswer::Panicked),
            Err(_) => Err(NoAnswer::TimedOut),
        }
    }

    /// Ends the transaction as the answer says.
    async fn end(
        &self,
        mut tx: SqlxTx,
        answer: Answer,
        took: Duration,
    ) -> Result<Attempted, Box<Doubtful>> {
        if answer.ending == Ending::Complete {
            return Ok(self.complete(tx, answer, took).await);
        }
        let is_aborted = match self.has_failed(&mut tx).await {
            Ok(is_aborted) => is_aborted,
            Err(response) => return Ok(Attempted::Ended(response)),
        };
        let (token, reply) = (tx.operation_id().to_owned(), answer.reply());
        roll_back(tx).await;
        let (is_kept, response) = (answer.ending == Ending::Decline, answer.into_response());
        if !is_aborted {
            return Ok(match is_kept {
                true => self.decline(&reply, response).await,
                false => Attempted::Ended(response),
            });
        }
        match self.after_abort(&token, response, took).await {
            // A refusal that is not kept is not sent either: a retry may be told something else.
            Ok(Attempted::Conflict(_)) if is_kept => Ok(self.conflict()),
            Ok(attempted) => Ok(attempted),
            Err(response) if is_kept => Err(Box::new(Doubtful { reply, response })),
            Err(response) => Ok(Attempted::Ended(response)),
        }
    }

    /// Commits the work with its answer.
    async fn complete(&self, tx: SqlxTx, answer: Answer, took: Duration) -> Attempted {
        let (token, reply) = (tx.operation_id().to_owned(), answer.reply());
        match tx.complete(reply.clone()).await {
            Err(error) if is_aborted(&error) => {
                tracing::error!(
                    operation = token,
                    "the handler answered {} after a statement had failed: nothing is committed",
                    reply.status
                );
                let why = "The service ignored an error of its database.";
                let told = self.told(Problem::rolled_back(FAILED, why));
                self.after_abort(&token, told, took).await.unwrap_or_else(Attempted::Ended)
            }
            ended => self.completed(ended, &reply, answer.into_response()),
        }
    }

    /// Rolls back what has no answer.
    async fn give_up(&self, mut tx: SqlxTx, no_answer: &NoAnswer, took: Duration) -> Attempted {
        let token = tx.operation_id().to_owned();
        tracing::error!(
            error = no_answer as &dyn std::error::Error,
            operation = token,
            "no answer of the handler can be kept: rolled back"
        );
        let told = self.told(no_answer.problem());
        // After a timeout a statement may still be running. The server ends it, and the rollback comes after it.
        let is_aborted = match no_answer {
            NoAnswer::TimedOut => false,
            _ => match self.has_failed(&mut tx).await {
                Ok(is_aborted) => is_aborted,
                Err(response) => return Attempted::Ended(response),
            },
        };
        roll_back(tx).await;
        match is_aborted {
            true => self.after_abort(&token, told, took).await.unwrap_or_else(Attempted::Ended),
            false => Attempted::Ended(told),
        }
    }
}

/// The ends of a transaction.
impl Work {
    /// What the commit says of an answer.
    fn completed(
        &self,
        ended: Result<Reply, TransactionError>,
        reply: &Reply,
        fresh: Response<Body>,
    ) -> Attempted {
        match ended {
            Ok(kept) if kept == *reply => Attempted::Ended(fresh),
            Ok(other) => Attempted::Ended(self.refused(&Refusal::Replay(stored(other)))),
            Err(error) if is_conflict(&error) => self.conflict(),
            Err(error) => Attempted::Ended(self.not_completed(&error)),
        }
    }

    /// Whether a statement of the handler has failed, so that the transaction is aborted. It is an error if the handler
    /// has ended the transaction by itself.
    async fn has_failed(&self, tx: &mut SqlxTx) -> Result<bool, Response<Body>> {
        let state = state(&self.rules.statements, tx);
        match timeout(END_WAIT_MAX, state).await {
            Ok(Ok(State::Open)) => Ok(false),
            Ok(Ok(State::Aborted)) => Ok(true),
            Ok(Err(error)) => Err(self.not_completed(&error)),
            // The connection is of no use any more, and the server rolls back.
            Err(_) => Ok(false),
        }
    }

    /// Keeps the answer of an operation whose writes are undone.
    async fn decline(&self, reply: &Reply, fresh: Response<Body>) -> Attempted {
        let (statements, pool) = (&self.rules.statements, &self.rules.pool);
        // Another caller may have begun it in the moment between.
        let begun = begin_to_keep(statements, pool, self.asked.parameters.clone()).await;
        match self.begun(begun) {
            Ok(empty) => self.completed(empty.complete(reply.clone()).await, reply, fresh),
            Err(attempted) => *attempted,
        }
    }

    /// What an error of the database means that the handler has not passed on: the operation was done before, or it may
    /// well have met another transaction. Else it is probably the handler's own affair, and its answer is given back.
    async fn after_abort(
        &self,
        token: &str,
        answer: Response<Body>,
        took: Duration,
    ) -> Result<Attempted, Response<Body>> {
        let pool = &self.rules.pool;
        if let Some(column) = &self.rules.column
            && column.has(pool, token).await
        {
            tracing::error!(
                operation = token,
                "the operation was done before, and its record is gone: look at it"
            );
            let statements = &self.rules.statements;
            return Ok(
                match begin_to_keep(statements, pool, self.asked.parameters.clone()).await {
                    Ok(Begun::Replay(reply)) => {
                        Attempted::Ended(self.refused(&Refusal::Replay(stored(reply))))
                    }
                    Ok(Begun::InProgress { .. }) => {
                        Attempted::Ended(self.refused(&Refusal::InProgress))
                    }
                    // It was done, whatever the database says or fails to say of its record.
                    Ok(Begun::Mine(_) | Begun::Reused) | Err(_) => {
                        Attempted::Ended(self.told(Problem::already_done()))
                    }
                },
            );
        }
        match may_be_conflict(pool, took).await {
            true => Ok(Attempted::Conflict(answer)),
            false => Err(answer),
        }
    }

    fn not_completed(&self, error: &TransactionError) -> Response<Body> {
        tracing::error!(error = error as &dyn std::error::Error, "the answer is not committed");
        self.told(not_completed(error))
    }

    fn conflict(&self) -> Attempted {
        Attempted::Conflict(self.told(Problem::conflict()))
    }

    pub(super) fn refused(&self, refusal: &Refusal) -> Response<Body> {
        let origin = || origin(&self.asked.head);
        problem::refused(refusal, &self.rules.policy, self.asked.key.as_str(), origin)
    }

    pub(super) fn told(&self, problem: Problem) -> Response<Body> {
        problem.about_key(self.asked.key.as_str()).response(&self.rules.policy)
    }
}

/// Rolls back now, so that the key is free when the client has its answer. A rollback that is not answered is made all the
/// same, only later: by sqlx, or by the server when the connection ends.
pub(super) async fn roll_back(tx: SqlxTx) {
    if let Ok(Err(error)) = timeout(END_WAIT_MAX, tx.roll_back()).await {
        tracing::warn!(error = &error as &dyn std::error::Error, "a rollback was not answered");
    }
}

fn failed(error: impl Into<BoxError>) -> NoAnswer {
    NoAnswer::Failed(error.into())
}

const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
/// How long the database may take to tell the state of a transaction, or to roll back.
const END_WAIT_MAX: Duration = Duration::from_secs(5);
