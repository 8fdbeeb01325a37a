//! Why an operation in the caller's transaction has no outcome.

use super::ReplyError;
#[cfg(any(feature = "postgres", feature = "sqlx"))]
use crate::sqlstate::is_definite;
use crate::store::BoxError;

/// Why there is no outcome. The key is safe in every case: begin it again and the database tells what became of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Nothing was done: the transaction is rolled back. Begin again with the same key.
    #[error("nothing was done")]
    NotDone(#[source] BoxError),
    /// The database cannot be asked whether the commit was made. Begin again with the same key: it is a replay if the
    /// commit was made, and runs if it was not.
    #[error("the database does not tell whether operation {token} was committed")]
    Unsure {
        /// The operation.
        token: String,
        /// Why it could not be asked.
        #[source]
        error: BoxError,
    },
    /// The tables or functions are not there, and nothing was done. In Postgres open a `PostgresStore` on the database, or run
    /// `onlyonce migrate --to postgres://…`. In SQLite call `Transactions::prepare`.
    #[error(
        "onlyonce is not installed in this database: run `onlyonce migrate --to postgres://…` once, or open a PostgresStore \
         on it; in a SQLite file call Transactions::prepare"
    )]
    NotInstalled(#[source] BoxError),
    /// The tables or functions were installed by another version of onlyonce. Use the same version everywhere.
    #[error(
        "another version of onlyonce is installed in this database: use that version, or another schema"
    )]
    OtherVersion,
    /// The role of the connection may not use the tables or functions, and nothing was done. Give it the rights that
    /// docs/transactions.md lists.
    #[error(
        "the role of this connection lacks a right: GRANT it what docs/transactions.md lists under Install"
    )]
    NotAllowed(#[source] BoxError),
    /// The session does not know the statements that this connection has prepared, and nothing was done: a pooler in
    /// transaction mode gives each transaction to another session. Connect past it, or let it support prepared statements:
    /// pgbouncer from 1.21 on with `max_prepared_statements` above 0. (`DEALLOCATE` in the work has the same effect.)
    #[error(
        "the session has lost its prepared statements, as behind a pooler in transaction mode: connect to the server itself, \
         or let the pooler support them (pgbouncer: max_prepared_statements)"
    )]
    Pooled(#[source] BoxError),
    /// The operation was committed, and its answer is missing: somebody has switched the check off, or written to its row. So
    /// it may have been done. Do not retry; find out what it did, then give its row an answer, or delete it.
    #[error(
        "the operation was committed without an answer: find out what it did, then give its row an answer, or delete it"
    )]
    WithoutAnswer(#[source] BoxError),
    /// The transaction was ended by something else than `complete`, `decline` or a rollback. Do not commit in the work.
    #[error("the work ended the transaction by itself")]
    EndedByWork(#[source] BoxError),
    /// The effect is there already, and the record of the key is not. Do not retry; read what the operation created.
    #[error("the operation was done before, and its record is gone")]
    AlreadyDone(#[source] BoxError),
    /// A setting of the SQLite connection under which a commit may be lost, or an answer be missing. Nothing was done.
    /// Set it when the connection is opened.
    #[error("PRAGMA {pragma} is {found} and must be {wanted}")]
    Setting {
        /// The name of the setting.
        pragma: &'static str,
        /// Its value.
        found: String,
        /// The values that are allowed.
        wanted: &'static str,
    },
    /// The operation was done, and its kept answer cannot be read. Do not retry; read what the operation created.
    #[error("the kept answer cannot be read")]
    Reply(#[from] ReplyError),
}

#[cfg(any(feature = "postgres", feature = "sqlx"))]
impl TransactionError {
    /// What a definite error means in answer to COMMIT. Our own statements have succeeded by then: whatever is missing is missing
    /// to a check or a trigger of the caller's.
    pub(super) fn of_commit(said: &Said, error: BoxError) -> Self {
        match said.state.as_str() {
            "OO004" | "OO005" => Self::EndedByWork(error),
            _ => Self::NotDone(error),
        }
    }

    /// What an error of the database means in answer to a statement of ours before COMMIT.
    pub(super) fn of_database(said: Option<&Said>, error: BoxError) -> Self {
        // What ends the session says nothing of the statement: poolers give 08P01 to whatever happens to them.
        let state = said.filter(|said| !said.ends_session).map(|said| said.state.as_str());
        match state {
            // Undefined function, undefined table, invalid schema name.
            Some("42883" | "42P01" | "3F000") => Self::NotInstalled(error),
            Some("42501") => Self::NotAllowed(error),
            // No such prepared statement, one that was there before, or one with other parameters.
            Some("26000" | "42P05" | "08P01") => Self::Pooled(error),
            Some("OO002") => Self::OtherVersion,
            Some("OO006") => Self::WithoutAnswer(error),
            // No open operation; not completed.
            Some("OO004" | "OO005") => Self::EndedByWork(error),
            _ => Self::NotDone(error),
        }
    }
}

/// What a server said of an error.
#[cfg(any(feature = "postgres", feature = "sqlx"))]
pub(super) struct Said {
    /// The SQLSTATE.
    pub(super) state: String,
    pub(super) ends_session: bool,
}

#[cfg(any(feature = "postgres", feature = "sqlx"))]
impl Said {
    /// Whether nothing was committed, also if it is the answer to COMMIT.
    pub(super) fn is_definite(&self) -> bool {
        is_definite(&self.state, self.ends_session)
    }
}
