//! Why there is no outcome.

use http::StatusCode;

use crate::store::BoxError;

/// Why there is no outcome. The key is safe in every case: call again with the same key, and the operation goes on after its
/// last committed point. A client may be told that its operation was not executed only if it is not
/// [begun](StepsError::may_be_begun).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepsError {
    /// The database did not answer, and the operation is begun, or may be: by this call, whose answer was lost, or by an
    /// earlier one. A [`Completer`](super::Completer) goes on with it, or the client when it calls again.
    #[error("the database did not answer, and operation {operation} may be begun")]
    MaybeBegun {
        /// The operation.
        operation: String,
        /// What the database said.
        #[source]
        error: BoxError,
    },
    /// The attempt failed. It is tried again by a [`Completer`](super::Completer), or when the client calls again.
    #[error("an attempt of operation {operation} failed, and is made again")]
    Failed {
        /// The operation.
        operation: String,
        /// Why it failed.
        #[source]
        error: BoxError,
    },
    /// What is stored does not fit this version of the program. Nothing was done. Deploy a version that has the stored
    /// steps, or settle the operation by hand; it is tried again after a pause.
    #[error("operation {operation} is stuck")]
    Stuck {
        /// The operation.
        operation: String,
        /// What does not fit.
        #[source]
        why: StuckError,
    },
    /// The operation was begun by a program of another name, and is not completed. Give the program its old name.
    #[error("operation {operation} belongs to the steps {stored:?}, not to {asked:?}")]
    OtherProgram {
        /// The operation.
        operation: String,
        /// The name that is stored.
        stored: String,
        /// The name of this program.
        asked: String,
    },
    /// The database did not answer. A call of [`Steps::run`](super::Steps::run) has begun nothing.
    #[error("the database did not answer")]
    Database(#[source] BoxError),
    /// The tables or functions are not there. In Postgres open a `PostgresStore` on the database, or run
    /// `onlyonce migrate --to postgres://…`.
    #[error(
        "the recovery points of onlyonce are not installed in this database: run `onlyonce migrate --to postgres://…` once, or \
         open a PostgresStore on it"
    )]
    NotInstalled(#[source] BoxError),
    /// The tables were made by another version of onlyonce. Use the same version everywhere.
    #[error("another version of onlyonce has made these tables")]
    OtherVersion,
    /// The operation is there, and cannot be read: another version has written it, or somebody has changed it by hand. Nobody
    /// goes on with it. Use the version that has written it, or settle it by hand.
    #[error("operation {operation} cannot be read")]
    Unreadable {
        /// The operation.
        operation: String,
        /// What cannot be read.
        #[source]
        error: BoxError,
    },
    /// The request cannot be written as JSON, or has more than 1 MiB. Nothing was begun.
    #[error("the request cannot be stored")]
    Request(#[source] BoxError),
    /// A setting of the SQLite connection under which a commit may be lost. Nothing was done.
    #[error("the SQLite connection is not set up for it")]
    Setting(#[source] BoxError),
    /// The operation is completed, and its answer cannot be read. Never do it again; read from your own tables what it did.
    #[error("the kept answer of operation {operation} cannot be read")]
    Reply {
        /// The operation.
        operation: String,
        /// The status of the answer.
        status: Option<StatusCode>,
        /// What cannot be read.
        #[source]
        error: BoxError,
    },
}

impl StepsError {
    /// Whether the operation is begun, or may be. Then it goes on without its client, or has been executed: do not answer that
    /// it was not.
    pub fn may_be_begun(&self) -> bool {
        match self {
            Self::Database(_) | Self::NotInstalled(_) | Self::Setting(_) | Self::Request(_) => {
                false
            }
            Self::MaybeBegun { .. }
            | Self::Failed { .. }
            | Self::Stuck { .. }
            | Self::OtherProgram { .. }
            | Self::OtherVersion
            | Self::Unreadable { .. }
            | Self::Reply { .. } => true,
        }
    }

    /// The same where the operation is begun, or may be.
    #[cfg(any(feature = "sqlite", feature = "sqlx"))]
    pub(super) fn of_begun(self, operation: String) -> Self {
        match self {
            Self::Database(error) | Self::NotInstalled(error) | Self::Setting(error) => {
                Self::MaybeBegun { operation, error }
            }
            other => other,
        }
    }
}

/// What does not fit between the stored operation and the program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StuckError {
    /// A step was renamed, removed, or moved, or a new one was put before it.
    #[error("point {number} is stored as {stored:?}, and the program asks for {asked:?}")]
    Changed {
        /// Counted from 1.
        number: usize,
        /// The name that is stored.
        stored: String,
        /// The name that the program has at this place.
        asked: String,
    },
    /// The program finishes without a step that is stored.
    #[error("point {number} is stored as {stored:?}, and the program finishes without it")]
    Removed {
        /// Counted from 1.
        number: usize,
        /// The name that is stored.
        stored: String,
    },
    /// A call was begun, and has no point yet. Under another name it would be made with another key, so twice.
    #[error("the call {stored:?} may have been made, and the program asks for {asked} instead")]
    CallChanged {
        /// The call that is stored.
        stored: String,
        /// What the program asks for at its place.
        asked: String,
    },
    /// What a step remembered cannot be read as what the program expects.
    #[error("what step {step:?} remembered cannot be read")]
    Memory {
        /// The step.
        step: String,
        /// Why not.
        #[source]
        error: BoxError,
    },
    /// The stored request cannot be read as what the program expects.
    #[error("the stored request cannot be read")]
    Request(#[source] BoxError),
    /// A name that no step can have: empty, longer than 200 bytes, with control characters, or used before in this
    /// operation. Each step needs its own, because its key is derived from it.
    #[error("no step can be named {name:?}: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An earlier attempt found it stuck, and the next one is not due.
    #[error("{0}")]
    Found(String),
}

/// An error with its causes.
pub(super) fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    for _ in 0..CAUSES_MAX {
        let Some(error) = cause else { break };
        let more = error.to_string();
        // Some errors tell their cause themselves.
        if !text.ends_with(&more) {
            text += &format!(": {more}");
        }
        cause = error.source();
    }
    text
}

const CAUSES_MAX: usize = 8;
