//! Exactly once, in the caller's own transaction: in Postgres, or in a SQLite file.
//!
//! 1. [`Transactions::begin`] claims the key in a transaction of the caller's pool. What the caller writes in that
//!    transaction, its messages and its answer commit together, or not at all.
//! 2. [`complete`](SqlxTx::complete) keeps an answer and commits. [`decline`](SqlxTx::decline) undoes the writes and keeps
//!    the answer: a 402 stays a 402. A dropped transaction is rolled back, and the key is free. There is no other end: a
//!    transaction that is committed without an answer is refused by the database.
//! 3. A duplicate gets the kept answer. While the first transaction runs it gets [`Begun::InProgress`] at once: no
//!    duplicate holds a connection that the first may need.
//! 4. A reply to COMMIT that was lost is not guessed at: the database is asked whether the commit was made.
//! 5. [`Transactions::run`] does the work again, from its start and in a new transaction, after a serialization failure or
//!    a deadlock.
//! 6. In axum a handler takes a [`Tx`] and answers; [`Transactions::layer`] does the rest. A consumer of messages calls
//!    [`Transactions::consume`].
//!
//! In Postgres the mechanism is SQL: functions that [`PostgresStore::open`](crate::store::postgres::PostgresStore::open) or
//! `onlyonce migrate` installs, and that programs in other languages call themselves. docs/transactions.md shows how.
//!
//! In SQLite it is tables in the caller's own file, which [`Transactions::prepare`] makes. [`Transactions::begin_in`] begins
//! on a rusqlite connection, [`SqliteTx`] has the same ends, and rules 1 to 3 hold; there is one writer at a time, so that a
//! duplicate waits for the connection's `busy_timeout` before it is [`Begun::InProgress`].
//!
//! It holds for what the transaction writes. A call to another service from inside the work is not part of the
//! transaction: [`steps`](crate::steps) are for that.
//!
//! ```no_run
//! # #[cfg(feature = "sqlx")]
//! # async fn charge(pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use http::StatusCode;
//! use onlyonce::transaction::{Begun, Reply, Transactions};
//! use onlyonce::{Operation, scope::Principal};
//!
//! let charge = Operation::new("POST /charges", Principal::of("account", b"acct_1"), "order-4711")?
//!     .with_payload(&7998)?;
//! let reply = match Transactions::new().begin(pool, &charge).await? {
//!     Begun::Mine(mut tx) => {
//!         sqlx::query("INSERT INTO charge (amount) VALUES ($1)").bind(7998).execute(&mut *tx).await?;
//!         tx.complete(Reply::new(StatusCode::CREATED, "charged")).await?
//!     }
//!     Begun::Replay(reply) => reply,
//!     Begun::InProgress { .. } => Reply::new(StatusCode::CONFLICT, "try again"),
//!     Begun::Reused => Reply::new(StatusCode::UNPROCESSABLE_ENTITY, "the key was used with another amount"),
//! };
//! # Ok(())
//! # }
//! # fn main() {}
//! ```
//!
//! An answer is completed in the transaction of its effect, once. The compiler refuses everything else:
//!
//! ```compile_fail,E0382
//! # use onlyonce::transaction::{Reply, SqlxTx};
//! # async fn charge(mut tx: SqlxTx, reply: Reply) -> Result<(), Box<dyn std::error::Error>> {
//! tx.complete(reply).await?;
//! sqlx::query("INSERT INTO charge (amount) VALUES (7998)").execute(&mut *tx).await?; // it is committed
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # use onlyonce::transaction::Reply;
//! # async fn charge(pool: &sqlx::PgPool, reply: Reply) -> Result<(), Box<dyn std::error::Error>> {
//! let other = pool.begin().await?;
//! other.complete(reply).await?; // a transaction that has begun no operation
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0451
//! # use onlyonce::transaction::{Reply, SqlxTx, Worked};
//! # fn charged(tx: SqlxTx, reply: Reply) -> Worked {
//! Worked { tx, reply, is_declined: false } // only a transaction makes it: `tx.completed(reply)`
//! # }
//! ```
//!
//! ```compile_fail,E0599
//! # async fn charge(tx: onlyonce::transaction::SqlxTx) -> Result<(), Box<dyn std::error::Error>> {
//! tx.commit().await?; // it is a connection, not a `sqlx::Transaction`
//! # Ok(())
//! # }
//! ```

mod error;
mod inbox;
#[cfg(feature = "sqlx")]
mod last_line;
#[cfg(all(feature = "sqlx", feature = "tower"))]
mod layer;
mod message_id;
#[cfg(feature = "sqlite")]
pub(crate) mod over_rusqlite;
#[cfg(feature = "sqlx")]
mod over_sqlx;
#[cfg(feature = "postgres")]
mod over_tokio_postgres;
pub(crate) mod parameters;
#[cfg(feature = "sqlx")]
pub(crate) mod pool;
mod reply;
#[cfg(feature = "sqlx")]
mod retry;
#[cfg(all(feature = "sqlx", feature = "tower"))]
mod state;
#[cfg(any(feature = "postgres", feature = "sqlx"))]
mod statements;
#[cfg(feature = "sqlx")]
mod wait;

#[cfg(any(feature = "postgres", feature = "sqlx"))]
use std::sync::Arc;
use std::time::Duration;

pub use self::error::TransactionError;
pub use self::inbox::Consumed;
#[cfg(feature = "sqlx")]
pub use self::last_line::is_already_done;
#[cfg(all(feature = "sqlx", feature = "tower"))]
pub use self::layer::{Ending, Transacted, TransactionLayer, Tx};
pub use self::message_id::MessageId;
#[cfg(feature = "sqlite")]
pub use self::over_rusqlite::SqliteTx;
#[cfg(feature = "sqlx")]
pub use self::over_sqlx::SqlxTx;
#[cfg(feature = "postgres")]
pub use self::over_tokio_postgres::PgTx;
pub use self::reply::{Reply, ReplyError};
#[cfg(feature = "sqlx")]
pub use self::retry::Worked;
#[cfg(any(feature = "postgres", feature = "sqlx"))]
use self::statements::Statements;

/// Begins operations in transactions of the caller.
#[derive(Clone, Debug)]
pub struct Transactions {
    #[cfg(any(feature = "postgres", feature = "sqlx"))]
    statements: Arc<Statements>,
}

impl Transactions {
    /// Uses the functions in the schema `onlyonce` of a Postgres database, or the tables in a SQLite file.
    pub fn new() -> Self {
        Self {
            #[cfg(any(feature = "postgres", feature = "sqlx"))]
            statements: Arc::new(Statements::of("onlyonce")),
        }
    }

    /// Uses the functions in `schema` of a Postgres database: the one that the store was opened with.
    #[cfg(any(feature = "postgres", feature = "sqlx"))]
    pub fn in_schema(schema: &str) -> Self {
        Self { statements: Arc::new(Statements::of(schema)) }
    }
}

impl Default for Transactions {
    fn default() -> Self {
        Self::new()
    }
}

/// What became of a begun operation. `T` is the transaction, if it is the caller's.
#[derive(Debug)]
#[must_use]
pub enum Begun<T> {
    /// The operation is the caller's: do the work, then complete.
    Mine(T),
    /// The operation was done before, and this is its answer.
    Replay(Reply),
    /// Another transaction does the work now. Call again.
    InProgress {
        /// How long to wait before the next call.
        retry_after: Duration,
    },
    /// The key was used with another payload. Do not retry; use a new key for this operation.
    Reused,
}

/// The row that `begin` and `resolve` return.
#[cfg(any(feature = "postgres", feature = "sqlx"))]
struct AnswerRow {
    outcome: String,
    token: Option<String>,
    status: Option<i32>,
    headers: Option<String>,
    body: Option<Vec<u8>>,
}

#[cfg(any(feature = "postgres", feature = "sqlx"))]
impl AnswerRow {
    /// What the row says; the transaction is made from the token, if it is the caller's.
    fn begun<T>(self, mine: impl FnOnce(String) -> T) -> Result<Begun<T>, TransactionError> {
        match (self.outcome.as_str(), &self.token) {
            ("mine", Some(token)) => Ok(Begun::Mine(mine(token.clone()))),
            ("replay", _) => Ok(Begun::Replay(self.reply()?)),
            ("in_progress", _) => Ok(Begun::InProgress { retry_after: RETRY_AFTER }),
            ("reused", _) => Ok(Begun::Reused),
            _ => Err(TransactionError::OtherVersion),
        }
    }

    /// The kept answer.
    fn reply(self) -> Result<Reply, TransactionError> {
        let (Some(status), Some(headers), Some(body)) = (self.status, self.headers, self.body)
        else {
            return Err(TransactionError::OtherVersion);
        };
        Ok(Reply::kept(status, &headers, body)?)
    }
}

const RETRY_AFTER: Duration = Duration::from_secs(1);
