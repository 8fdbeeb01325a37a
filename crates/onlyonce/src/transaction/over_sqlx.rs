//! Operations in sqlx transactions.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgDatabaseError, PgRow, PgSeverity};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Row};
use tokio::time::{Instant, sleep, timeout};

use super::error::Said;
use super::parameters::Parameters;
use super::pool::{ANSWER_WAIT_MAX, BY_DEFAULT, LEFT_OPEN, READ_COMMITTED, Whole};
use super::statements::{Statements, VERSION};
use super::{AnswerRow, Begun, Reply, TransactionError, Transactions};
use crate::Operation;
use crate::store::BoxError;

impl Transactions {
    /// Begins `operation` in a new transaction of `pool`. It never waits for another transaction.
    ///
    /// # Errors
    /// If the database does not answer, or has not the functions: see [`TransactionError`].
    pub async fn begin(
        &self,
        pool: &PgPool,
        operation: &Operation,
    ) -> Result<Begun<SqlxTx>, TransactionError> {
        begin(&self.statements, pool, Arc::new(Parameters::of(operation))).await
    }

    /// Whether `consumer` sees a message for the first time. Call it in the transaction of the effect; a duplicate is
    /// acknowledged without effect. `message_id` must be the same at every delivery.
    ///
    /// # Errors
    /// As [`Transactions::begin`]; and on a connection without a transaction, where the mark would be committed before the
    /// effect.
    pub async fn is_first_delivery(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
        message_id: &str,
    ) -> Result<bool, TransactionError> {
        let seen = query(&self.statements.seen).bind(consumer).bind(message_id);
        let row = seen.fetch_one(connection).await.map_err(failed)?;
        row.try_get("seen").map_err(failed)
    }
}

/// A transaction that has begun an operation. It is a connection for the caller's own statements; dropped, it is
/// rolled back and the key is free.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct SqlxTx {
    transaction: Whole,
    pool: PgPool,
    token: String,
    parameters: Arc<Parameters>,
    statements: Arc<Statements>,
}

impl SqlxTx {
    /// Keeps the answer and commits: the work, its messages and the answer, or nothing.
    ///
    /// # Errors
    /// If nothing was committed, or the database cannot tell: see [`TransactionError`].
    pub async fn complete(mut self, reply: impl Into<Reply>) -> Result<Reply, TransactionError> {
        let reply = reply.into();
        if self.transaction.has_nested() {
            return Err(TransactionError::NotDone(LEFT_OPEN.into()));
        }
        let asked_at = Instant::now();
        let complete = query(&self.statements.complete)
            .bind(&self.token)
            .bind(i32::from(reply.status.as_u16()))
            .bind(reply.headers_json())
            .bind(&reply.body[..]);
        answered(complete.execute(&mut *self.transaction)).await?;
        let lost: BoxError = match timeout(COMMIT_WAIT_MAX, self.transaction.commit()).await {
            Ok(Ok(())) => return Ok(reply),
            Ok(Err(error)) => refused(error)?,
            Err(elapsed) => elapsed.into(),
        };
        let asked = Lost { token: self.token, parameters: &self.parameters, asked_at };
        resolve(&self.statements, &self.pool, asked, lost).await
    }

    /// Undoes the work and keeps the answer, for a refusal that every duplicate shall get. If another caller does the
    /// operation in the moment between, the answer of that caller is kept and returned.
    ///
    /// # Errors
    /// As [`SqlxTx::complete`].
    // Not by a savepoint: sqlx waits for the answer to each statement, so that every operation would pay for it.
    pub async fn decline(self, reply: impl Into<Reply>) -> Result<Reply, TransactionError> {
        answered(self.transaction.rollback()).await?;
        keep(&self.statements, &self.pool, self.parameters, reply.into()).await
    }

    /// Undoes the work and frees the key, before another caller may ask for it.
    #[cfg(feature = "tower")]
    pub(super) async fn roll_back(self) -> Result<(), TransactionError> {
        self.transaction.rollback().await.map_err(failed)
    }

    /// Adds a message to the operation, and returns its id. Messages of one `topic` and `key` are shipped in order, and
    /// transactions that add them wait for each other; those without a key are shipped in any order.
    ///
    /// # Errors
    /// As [`Transactions::begin`].
    pub async fn outbox(
        &mut self,
        topic: &str,
        key: Option<&str>,
        payload: &[u8],
    ) -> Result<String, TransactionError> {
        let message =
            query(&self.statements.outbox).bind(&self.token).bind(topic).bind(key).bind(payload);
        let row = message.fetch_one(&mut *self.transaction).await.map_err(failed)?;
        row.try_get("id").map_err(failed)
    }

    /// The operation's id: the same at every attempt. As a unique column of the business table it is the last line of
    /// defence.
    pub fn operation_id(&self) -> &str {
        &self.token
    }
}

impl Deref for SqlxTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for SqlxTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

pub(super) async fn begin(
    statements: &Arc<Statements>,
    pool: &PgPool,
    parameters: Arc<Parameters>,
) -> Result<Begun<SqlxTx>, TransactionError> {
    begin_by(BY_DEFAULT, statements, pool, parameters).await
}

/// The same for an operation whose work is done or undone: in this transaction only its answer is kept.
pub(super) async fn begin_to_keep(
    statements: &Arc<Statements>,
    pool: &PgPool,
    parameters: Arc<Parameters>,
) -> Result<Begun<SqlxTx>, TransactionError> {
    begin_by(READ_COMMITTED, statements, pool, parameters).await
}

async fn begin_by(
    statement: &'static str,
    statements: &Arc<Statements>,
    pool: &PgPool,
    parameters: Arc<Parameters>,
) -> Result<Begun<SqlxTx>, TransactionError> {
    let mut transaction = Whole::begin(pool, statement).await.map_err(failed)?;
    let begin = query(&statements.begin)
        .bind(&parameters.scope)
        .bind(&parameters.principal)
        .bind(&parameters.key)
        .bind(&parameters.fingerprint)
        .bind(parameters.ttl_ms)
        .bind(VERSION);
    let row = read(&answered(begin.fetch_one(&mut *transaction)).await?)?;
    let (statements, pool) = (statements.clone(), pool.clone());
    row.begun(|token| SqlxTx { transaction, pool, token, parameters, statements })
}

/// Keeps the answer of an operation in a transaction that does nothing else.
pub(super) async fn keep(
    statements: &Arc<Statements>,
    pool: &PgPool,
    parameters: Arc<Parameters>,
    reply: Reply,
) -> Result<Reply, TransactionError> {
    match begin_to_keep(statements, pool, parameters).await? {
        Begun::Mine(empty) => Box::pin(empty.complete(reply)).await,
        Begun::Replay(reply) => Ok(reply),
        Begun::InProgress { .. } | Begun::Reused => {
            Err(TransactionError::NotDone("another caller has the key now".into()))
        }
    }
}

fn read(row: &PgRow) -> Result<AnswerRow, TransactionError> {
    let read = || {
        Ok(AnswerRow {
            outcome: row.try_get("outcome")?,
            token: row.try_get("token")?,
            status: row.try_get("status")?,
            headers: row.try_get("headers")?,
            body: row.try_get("body")?,
        })
    };
    read().map_err(failed)
}

impl std::fmt::Debug for SqlxTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlxTx").field("token", &self.token).finish_non_exhaustive()
    }
}

/// An operation whose COMMIT was not answered.
struct Lost<'a> {
    token: String,
    parameters: &'a Parameters,
    /// From before it was completed: its answer does not expire within its ttl from here.
    asked_at: Instant,
}

/// Asks whether the commit was made whose reply is `lost`, until the database tells.
async fn resolve(
    statements: &Statements,
    pool: &PgPool,
    asked: Lost<'_>,
    lost: BoxError,
) -> Result<Reply, TransactionError> {
    let end = Instant::now() + RESOLVE_WAIT_MAX;
    let error: BoxError = loop {
        let error: BoxError = match timeout(RESOLVE_CALL_MAX, asked.ask(statements, pool)).await {
            Ok(Ok(Some(row))) => return read(&row)?.reply(),
            // It may have been made, and its answer have expired.
            Ok(Ok(None)) if asked.may_have_expired() => break lost,
            Ok(Ok(None)) => return Err(not_done(lost)),
            Ok(Err(error)) => error.into(),
            Err(elapsed) => elapsed.into(),
        };
        if Instant::now() >= end {
            break error;
        }
        sleep(RESOLVE_PAUSE).await;
    };
    Err(TransactionError::Unsure { token: asked.token, error })
}

impl Lost<'_> {
    async fn ask(
        &self,
        statements: &Statements,
        pool: &PgPool,
    ) -> Result<Option<PgRow>, sqlx::Error> {
        let mut transaction = Whole::begin(pool, READ_COMMITTED).await?;
        let resolve = query(&statements.resolve);
        let resolve = resolve.bind(&self.token).bind(&self.parameters.fingerprint);
        resolve.fetch_optional(&mut *transaction).await
    }

    fn may_have_expired(&self) -> bool {
        self.asked_at.elapsed().as_secs_f64() * 1000.0 >= self.parameters.ttl_ms
    }
}

fn not_done(lost: BoxError) -> TransactionError {
    match lost.downcast::<sqlx::Error>() {
        Ok(error) => failed(*error),
        Err(elapsed) => TransactionError::NotDone(elapsed),
    }
}

pub(super) fn query(
    sql: &Arc<str>,
) -> sqlx::query::Query<'static, Postgres, sqlx::postgres::PgArguments> {
    sqlx::query(AssertSqlSafe(sql.clone()))
}

/// What the server answers, in time, to a statement before COMMIT: whatever goes wrong, nothing is committed.
async fn answered<T>(
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, TransactionError> {
    match timeout(ANSWER_WAIT_MAX, asked).await {
        Ok(answer) => answer.map_err(failed),
        Err(elapsed) => Err(TransactionError::NotDone(elapsed.into())),
    }
}

pub(super) fn failed(error: sqlx::Error) -> TransactionError {
    TransactionError::of_database(said(&error).as_ref(), error.into())
}

/// An error if the server has refused to commit, so that the commit was not made; else what was said instead.
pub(super) fn refused(error: sqlx::Error) -> Result<BoxError, TransactionError> {
    match said(&error).filter(Said::is_definite) {
        Some(said) => Err(TransactionError::of_commit(&said, error.into())),
        None => Ok(error.into()),
    }
}

/// What the server said of an error, if it is the server's.
fn said(error: &sqlx::Error) -> Option<Said> {
    let said = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    let ends_session = matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic);
    Some(Said { state: said.code().to_owned(), ends_session })
}

/// How long a commit may take before the database is asked whether it was made.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long the database is asked whether a commit was made, and how often; one call waits for a lock for two seconds.
const RESOLVE_CALL_MAX: Duration = Duration::from_secs(5);
const RESOLVE_WAIT_MAX: Duration = Duration::from_secs(30);
const RESOLVE_PAUSE: Duration = Duration::from_millis(100);
