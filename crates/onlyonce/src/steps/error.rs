//! Why there is no outcome.

use crate::store::BoxError;
use crate::transaction::ReplyError;

/// Why there is no outcome. The key is safe in every case: call again with the same key, and the operation goes on after its
/// last committed point.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepsError {
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
    /// The database did not answer. Nothing was begun, or it goes on later.
    #[error("the database did not answer")]
    Database(#[source] BoxError),
    /// The tables or functions are not there. In Postgres open a `PostgresStore` on the database, or run
    /// `onlyonce migrate --to postgres://…`.
    #[error(
        "the recovery points of onlyonce are not installed in this database: run `onlyonce migrate --to postgres://…` once, or \
         open a PostgresStore on it"
    )]
    NotInstalled(#[source] BoxError),
    /// What is stored was written by another version of onlyonce. Use the same version everywhere.
    #[error("another version of onlyonce has written this operation")]
    OtherVersion,
    /// The request cannot be written as JSON, or has more than 1 MiB. Nothing was begun.
    #[error("the request cannot be stored")]
    Request(#[source] BoxError),
    /// A setting of the SQLite connection under which a commit may be lost. Nothing was done.
    #[error("the SQLite connection is not set up for it")]
    Setting(#[source] BoxError),
    /// The kept answer cannot be read.
    #[error("the kept answer cannot be read")]
    Reply(#[from] ReplyError),
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
