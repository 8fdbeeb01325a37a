//! Recovery points: operations of several steps, with calls to other services between their commits.
//!
//! A charge at a card network cannot be part of a transaction. So the work is cut into steps, and after a crash it goes on
//! after the last one that was committed.
//!
//! 1. **A step** ([`Run::step`]) works in a transaction of your database. Its effect, its **point** (the step's name) and what
//!    it wants **remembered** commit together, or not at all.
//! 2. **A call** ([`Run::call`]) to another service is made between two commits, with a key that is derived from the operation
//!    and the step: the same at every attempt, on every node. Its name is committed before the call, its result after it. If
//!    the result is lost, the call is made again with the same key.
//! 3. **A call that must not be repeated** ([`Run::call_once`]): its start is committed before it is made. If the process dies
//!    amid it, the operation is *unknown*, and nobody makes the call again by itself.
//! 4. **A retry goes on** after the last committed point, never before it. A program whose steps do not fit the stored points
//!    is refused: the operation is *stuck*, operators see it, and nothing is done twice.
//! 5. **One owner at a time**, by a lease that is renewed while it runs. Every commit of a step demands the owner's token, in
//!    the transaction of its effect: an owner that was taken for dead commits nothing when it wakes up.
//! 6. **The request is stored.** A [`Completer`] goes on with operations whose client never came back, and tries those again
//!    that failed: after a pause that doubles, with jitter, until the attempts are used up. Then the operation is *unknown*.
//! 7. **A duplicate** gets the kept answer, or [`StepsOutcome::InProgress`], [`StepsOutcome::Reused`] or [`StepsOutcome::Unknown`]; it never
//!    runs a step.
//!
//! It does not make the services one: a card stays charged while a later step fails, until a step of yours cancels it. Such a
//! compensation is a call like every other, with a key of its own:
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use http::StatusCode;
//! use onlyonce::steps::{Finished, StepsOutcome, Run, SqliteDatabase, Steps, Stopped};
//! use onlyonce::transaction::Reply;
//! use onlyonce::{Operation, scope::Principal};
//!
//! # async fn reserve(key: &str) -> Result<u32, std::io::Error> { Ok(14) }
//! # async fn cancel(key: &str, seat: u32) -> Result<(), std::io::Error> { Ok(()) }
//! # async fn charge(key: &str, amount: u32) -> Result<bool, std::io::Error> { Ok(amount < 5000) }
//! async fn book(mut run: Run<SqliteDatabase>, amount: u32) -> Result<Finished, Stopped> {
//!     run.step("trip saved", async |tx| {
//!         tx.execute("INSERT INTO trip VALUES (?1)", [tx.operation_id()])?;
//!         Ok(())
//!     })
//!     .await?;
//!     let seat = run.call("seat reserved", async |key| Ok(reserve(&key).await?)).await?;
//!     // A definite refusal is a value like every other. An error means: try again, with the same key.
//!     let is_charged = run.call("card charged", async |key| Ok(charge(&key, amount).await?)).await?;
//!     if !is_charged {
//!         run.call("seat cancelled", async |key| Ok(cancel(&key, seat).await?)).await?;
//!     }
//!     run.finish(async |_tx| {
//!         Ok(match is_charged {
//!             true => Reply::new(StatusCode::CREATED, format!("seat {seat}")),
//!             false => Reply::new(StatusCode::PAYMENT_REQUIRED, "declined"),
//!         })
//!     })
//!     .await
//! }
//!
//! # let directory = tempfile::tempdir()?;
//! # let file = directory.path().join("shop.db");
//! let db = rusqlite::Connection::open(file)?;
//! db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")?;
//! # db.execute_batch("CREATE TABLE trip (operation TEXT UNIQUE)")?;
//! let shop = SqliteDatabase::new(db)?; // PgDatabase::new(pool) for Postgres
//! let booking = Steps::new("book a trip", book);
//! let trip = Operation::new("POST /trips", Principal::of("account", b"acct_1"), "trip-4711")?;
//! let outcome = booking.run(&shop, &trip, &7998).await?;
//! assert_eq!(outcome, StepsOutcome::Done(Reply::new(StatusCode::PAYMENT_REQUIRED, "declined")));
//! let again = booking.run(&shop, &trip, &7998).await?;
//! assert_eq!(again, StepsOutcome::Replay(Reply::new(StatusCode::PAYMENT_REQUIRED, "declined")));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! docs/recovery-points.md is for operators, and says more about changing a program.

#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod completer;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod database;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod decide;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod definition;
mod error;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod held;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod lent;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod operators;
#[cfg(all(feature = "tower", any(feature = "sqlite", feature = "sqlx")))]
mod over_http;
#[cfg(feature = "sqlite")]
mod over_rusqlite;
#[cfg(feature = "sqlx")]
mod over_sqlx;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod owned;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod passed_over;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod perform;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod rules;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod run;
mod state;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
mod stopped;

#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub use self::completer::Completer;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub use self::database::Database;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub use self::definition::{Steps, StepsOutcome};
pub use self::error::{StepsError, StuckError};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::operators::{CallAgain, Operators, StepsFilter, StoredPoint, StoredSteps};
#[cfg(all(feature = "tower", any(feature = "sqlite", feature = "sqlx")))]
pub use self::over_http::HttpSteps;
#[cfg(feature = "sqlite")]
pub use self::over_rusqlite::{SqliteDatabase, SqliteStep};
#[cfg(feature = "sqlx")]
pub use self::over_sqlx::{PgDatabase, PgStep};
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub use self::run::{Finished, Run};
pub use self::state::StepsState;
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub use self::stopped::Stopped;
