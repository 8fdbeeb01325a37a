//! Recovery points.
mod completer;
mod database;
mod decide;
mod definition;
mod error;
mod held;
mod lent;
#[cfg(feature = "tower")]
mod over_http;
#[cfg(feature = "sqlite")]
mod over_rusqlite;
#[cfg(feature = "sqlx")]
mod over_sqlx;
mod owned;
mod perform;
mod rules;
mod run;

pub use self::completer::Completer;
pub use self::database::Database;
pub use self::definition::{Outcome, Steps};
pub use self::error::{StepsError, Stopped, StuckError};
pub use self::held::State;
#[cfg(feature = "tower")]
pub use self::over_http::HttpSteps;
#[cfg(feature = "sqlite")]
pub use self::over_rusqlite::{SqliteDatabase, SqliteStep};
#[cfg(feature = "sqlx")]
pub use self::over_sqlx::{PgDatabase, PgStep};
pub use self::run::{Finished, Run};
