//! What became of a transaction while the work had it.
//!
//! sqlx does not tell, so the database is asked. A transaction in which a statement has failed takes no other, whatever the
//! work made of the error. Why it failed nobody tells any more. A serialization failure is likely only above READ COMMITTED, and
//! a deadlock is noticed only after `deadlock_timeout`; whatever else it was, it was probably neither. Probably: under READ
//! COMMITTED a row that has moved to another partition is a serialization failure too (`layer/doubts.rs`).

use std::error::Error;
use std::time::Duration;

use sqlx::{AssertSqlSafe, PgPool, Row};
use tokio::time::timeout;

use super::over_sqlx::{failed, query};
use super::pool::IS_ABOVE_READ_COMMITTED;
use super::statements::Statements;
use super::{SqlxTx, TransactionError};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The operation is open: nothing has failed.
    Open,
    /// A statement has failed.
    Aborted,
}

/// The state of a transaction that is rolled back next: its operation is completed, which proves that it was open.
pub(super) async fn state(
    statements: &Statements,
    tx: &mut SqlxTx,
) -> Result<State, TransactionError> {
    let token = tx.operation_id().to_owned();
    let complete = query(&statements.complete).bind(token).bind(200_i32).bind("{}").bind(&b""[..]);
    let completed: Result<_, sqlx::Error> = complete.execute(&mut **tx).await;
    match completed.map_err(failed) {
        Ok(_) => Ok(State::Open),
        Err(error) if is_aborted(&error) => Ok(State::Aborted),
        Err(error) => Err(error),
    }
}

/// Whether a statement failed because one before it had.
pub(super) fn is_aborted(error: &TransactionError) -> bool {
    let cause = error.source().and_then(|error| error.downcast_ref::<sqlx::Error>());
    let state = cause.and_then(sqlx::Error::as_database_error).and_then(|error| error.code());
    state.as_deref() == Some("25P02")
}

/// Whether a statement of work that took this long may have failed because it met another transaction.
pub(super) async fn may_be_conflict(pool: &PgPool, took: Duration) -> bool {
    let took_ms = took.as_secs_f64() * 1000.0;
    let ask = format!("SELECT {IS_ABOVE_READ_COMMITTED} OR {WAS_LONG}");
    let asked = sqlx::query(AssertSqlSafe(ask)).bind(took_ms).fetch_one(pool);
    match timeout(ASK_MAX, asked).await {
        Ok(Ok(row)) => row.try_get(0).unwrap_or(true),
        // Then the next attempt tells that the database does not answer.
        Ok(Err(_)) | Err(_) => true,
    }
}

// Half of the time: the clocks of two machines tick differently. In the caller's session, so with full names.
const WAS_LONG: &str = "$1::double precision OPERATOR(pg_catalog.*) interval '2 ms'
    OPERATOR(pg_catalog.>=) pg_catalog.current_setting('deadlock_timeout')::interval";
const ASK_MAX: Duration = Duration::from_secs(5);
