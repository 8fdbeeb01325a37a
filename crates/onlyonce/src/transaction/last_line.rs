//! The last line of defence: a unique column of the business table that has the operation's id.

use std::error::Error;
#[cfg(feature = "tower")]
use std::{sync::Arc, time::Duration};

#[cfg(feature = "tower")]
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::TransactionError;
use crate::sqlstate::database_error;

impl TransactionError {
    /// What an error of the work means: [`AlreadyDone`](Self::AlreadyDone) if it violates the unique constraint of the
    /// operation's id, else [`NotDone`](Self::NotDone). `constraint` is the name of the constraint or of its column.
    ///
    /// ```no_run
    /// # use onlyonce::transaction::{SqlxTx, TransactionError};
    /// # async fn charge(mut tx: SqlxTx) -> Result<(), TransactionError> {
    /// let operation = tx.operation_id().to_owned();
    /// let charge = sqlx::query("INSERT INTO charge (operation, amount) VALUES ($1::uuid, 7998)").bind(operation);
    /// charge.execute(&mut *tx).await.map_err(|error| TransactionError::of_work(error, "charge_operation_key"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_work(error: sqlx::Error, constraint: &str) -> Self {
        match is_already_done(&error, constraint) {
            true => Self::AlreadyDone(error.into()),
            false => Self::NotDone(error.into()),
        }
    }
}

/// Whether an error, or one of its causes, violates the unique constraint of the operation's id. `constraint` is the name of
/// the constraint (`charge_operation_key`), or of the column if the constraint has only that one (`operation`).
///
/// It means that the operation was done before, and that its record is gone: a key deleted by hand, a backup put back, or a
/// key used again after its `ttl`. Answer 409, not 500, and look at it.
pub fn is_already_done(error: &(dyn Error + 'static), constraint: &str) -> bool {
    database_error(error, |error| violates(error, constraint)).is_some()
}

fn violates(error: &dyn sqlx::error::DatabaseError, constraint: &str) -> bool {
    if error.code().as_deref() != Some("23505") {
        return false;
    }
    let detail =
        error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().and_then(|e| e.detail());
    error.constraint() == Some(constraint) || detail.is_some_and(|text| is_of(text, constraint))
}

/// Postgres names the columns of the index only in its text: `Key (operation)=(…) already exists.` The language is that of the
/// server, but the first parenthesis has the columns. What comes after it are values, which may be anything.
fn is_of(detail: &str, column: &str) -> bool {
    let Some(start) = detail.find('(') else { return false };
    let names = |column: &str| detail[start..].starts_with(&format!("({column})=("));
    names(column) || names(&quoted(column))
}

/// The column, as the layer asks it.
#[cfg(feature = "tower")]
#[derive(Clone, Debug)]
pub(super) struct OperationColumn {
    table: Arc<str>,
    column: Arc<str>,
}

#[cfg(feature = "tower")]
impl OperationColumn {
    pub(super) fn new(table: &str, column: &str) -> Self {
        let table: Vec<_> = table.split('.').map(quoted).collect();
        Self { table: table.join(".").into(), column: quoted(column).into() }
    }

    /// Whether a row has this operation. The id is written out, so that the column may be a uuid or a text.
    pub(super) async fn has(&self, pool: &PgPool, token: &str) -> bool {
        let Self { table, column } = self;
        let token = token.replace('\'', "''");
        // In the caller's session, whose search_path leads to the table, and may lead to an operator of somebody else's.
        let sql = format!(
            "SELECT EXISTS (SELECT FROM {table} WHERE {column} OPERATOR(pg_catalog.=) '{token}')"
        );
        let asked = sqlx::query(AssertSqlSafe(sql)).fetch_one(pool);
        match tokio::time::timeout(ASK_MAX, asked).await {
            Ok(Ok(row)) => row.try_get(0).unwrap_or(false),
            Ok(Err(error)) => {
                tracing::error!(
                    error = &error as &dyn Error,
                    "cannot ask whether {table} has an operation in {column}"
                );
                false
            }
            Err(_) => false,
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(feature = "tower")]
const ASK_MAX: Duration = Duration::from_secs(5);
