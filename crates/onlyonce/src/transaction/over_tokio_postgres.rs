//! Operations in tokio-postgres transactions.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use futures_util::future::join;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, IsolationLevel, Row, Transaction};

use super::error::Said;
use super::parameters::Parameters;
use super::statements::{SAVEPOINT, Statements, UNDO, VERSION};
use super::{AnswerRow, Begun, Reply, TransactionError, Transactions};
use crate::Operation;
use crate::store::BoxError;

/// With its type, a statement needs no round trip to be prepared.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Transactions {
    /// Begins `operation` in a new transaction of `client`. It never waits for another transaction.
    ///
    /// # Errors
    /// If the database does not answer, or has not the functions: see [`TransactionError`].
    pub async fn begin_on<'a>(
        &self,
        client: &'a mut Client,
        operation: &Operation,
    ) -> Result<Begun<PgTx<'a>>, TransactionError> {
        let transaction = client.transaction().await.map_err(failed)?;
        let asked = Parameters::of(operation);
        let parameters: [Parameter<'_>; 6] = [
            (&asked.scope, Type::TEXT),
            (&asked.principal, Type::TEXT),
            (&asked.key, Type::TEXT),
            (&asked.fingerprint, Type::BYTEA),
            (&asked.ttl_ms, Type::FLOAT8),
            (&VERSION, Type::INT4),
        ];
        // The savepoint is for `decline`. It is sent behind the call without waiting for its answer.
        let (row, saved) = join(
            transaction.query_typed_one(&self.statements.begin, &parameters),
            transaction.batch_execute(SAVEPOINT),
        )
        .await;
        let row = read(&row.map_err(failed)?)?;
        saved.map_err(failed)?;
        row.begun(|token| PgTx { transaction, token, statements: self.statements.clone() })
    }

    /// What became of `operation` after [`TransactionError::Unsure`]: its answer, or `None` if nothing was done. Ask on a new
    /// connection, and before the ttl of the operation is over: an answer that has expired is none. It waits up to two seconds
    /// for a commit that is still on its way, and is an error then.
    ///
    /// # Errors
    /// If the database does not tell. Ask again.
    pub async fn resolve_on(
        &self,
        client: &mut Client,
        operation: &Operation,
        token: &str,
    ) -> Result<Option<Reply>, TransactionError> {
        // Whatever the default is: an older snapshot would not see the commit.
        let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let transaction = begin.start().await.map_err(failed)?;
        let fingerprint = Parameters::of(operation).fingerprint;
        let asked: [Parameter<'_>; 2] = [(&token, Type::TEXT), (&fingerprint, Type::BYTEA)];
        let row = transaction.query_typed_opt(&self.statements.resolve, &asked).await;
        row.map_err(failed)?.map(|row| read(&row)?.reply()).transpose()
    }

    /// Whether `consumer` sees a message for the first time: [`is_first_delivery`](Self::is_first_delivery) for
    /// tokio-postgres.
    ///
    /// # Errors
    /// As [`Transactions::begin_on`].
    pub async fn is_first_delivery_on(
        &self,
        transaction: &Transaction<'_>,
        consumer: &str,
        message_id: &str,
    ) -> Result<bool, TransactionError> {
        let asked: [Parameter<'_>; 2] = [(&consumer, Type::TEXT), (&message_id, Type::TEXT)];
        let row = transaction.query_typed_one(&self.statements.seen, &asked).await;
        row.map_err(failed)?.try_get("seen").map_err(failed)
    }
}

/// A transaction that has begun an operation. Dropped, it is rolled back and the key is free.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct PgTx<'a> {
    transaction: Transaction<'a>,
    token: String,
    statements: Arc<Statements>,
}

impl PgTx<'_> {
    /// Keeps the answer and commits: the work, its messages and the answer, or nothing.
    ///
    /// # Errors
    /// [`TransactionError::Unsure`] if the reply to the commit was lost: ask
    /// [`resolve_on`](Transactions::resolve_on) on a new connection. Else nothing was committed.
    pub async fn complete(self, reply: impl Into<Reply>) -> Result<Reply, TransactionError> {
        let reply = reply.into();
        let (status, headers) = (i32::from(reply.status.as_u16()), reply.headers_json());
        let body = &reply.body[..];
        let parameters: [Parameter<'_>; 4] = [
            (&self.token, Type::TEXT),
            (&status, Type::INT4),
            (&headers, Type::TEXT),
            (&body, Type::BYTEA),
        ];
        // COMMIT is sent behind the call without waiting for its answer. If the call fails, COMMIT rolls back.
        let (completed, committed) = join(
            self.transaction.execute_typed(&self.statements.complete, &parameters),
            self.transaction.batch_execute("COMMIT"),
        )
        .await;
        // It has ended. Dropped, it would send a ROLLBACK as well.
        std::mem::forget(self.transaction);
        let lost: BoxError = match (completed, committed) {
            (Ok(_), Ok(())) => return Ok(reply),
            (Err(error), _) if error.code().is_some() => return Err(failed(error)),
            (Err(error), _) => error.into(),
            (Ok(_), Err(error)) => refused(error)?,
        };
        Err(TransactionError::Unsure { token: self.token, error: lost })
    }

    /// Undoes the work and keeps the answer, for a refusal that every duplicate shall get.
    ///
    /// # Errors
    /// As [`PgTx::complete`].
    pub async fn decline(self, reply: impl Into<Reply>) -> Result<Reply, TransactionError> {
        self.transaction.batch_execute(UNDO).await.map_err(failed)?;
        self.complete(reply).await
    }

    /// Adds a message to the operation, and returns its id. Messages of one `topic` and `key` are shipped in order, and
    /// transactions that add them wait for each other; those without a key are shipped in any order.
    ///
    /// # Errors
    /// As [`Transactions::begin_on`].
    pub async fn outbox(
        &self,
        topic: &str,
        key: Option<&str>,
        payload: &[u8],
    ) -> Result<String, TransactionError> {
        let parameters: [Parameter<'_>; 4] = [
            (&self.token, Type::TEXT),
            (&topic, Type::TEXT),
            (&key, Type::TEXT),
            (&payload, Type::BYTEA),
        ];
        let row = self.transaction.query_typed_one(&self.statements.outbox, &parameters).await;
        row.map_err(failed)?.try_get("id").map_err(failed)
    }

    /// The operation's id: the same at every attempt. As a unique column of the business table it is the last line of
    /// defence.
    pub fn operation_id(&self) -> &str {
        &self.token
    }
}

impl<'a> Deref for PgTx<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}

impl<'a> DerefMut for PgTx<'a> {
    fn deref_mut(&mut self) -> &mut Transaction<'a> {
        &mut self.transaction
    }
}

impl std::fmt::Debug for PgTx<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgTx").field("token", &self.token).finish_non_exhaustive()
    }
}

fn read(row: &Row) -> Result<AnswerRow, TransactionError> {
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

pub(super) fn failed(error: tokio_postgres::Error) -> TransactionError {
    TransactionError::of_database(said(&error).as_ref(), error.into())
}

/// An error if the server has refused to commit, so that the commit was not made; else what was said instead.
pub(super) fn refused(error: tokio_postgres::Error) -> Result<BoxError, TransactionError> {
    match said(&error).filter(Said::is_definite) {
        Some(said) => Err(TransactionError::of_commit(&said, error.into())),
        None => Ok(error.into()),
    }
}

/// What the server said of an error, if it is the server's.
fn said(error: &tokio_postgres::Error) -> Option<Said> {
    let said = error.as_db_error()?;
    let ends_session = matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    Some(Said { state: said.code().code().to_owned(), ends_session })
}
