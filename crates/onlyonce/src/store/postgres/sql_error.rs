//! What an error says of a batch that was sent: whether it was done, and what to do next.

use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use crate::sqlstate::is_definite;
use crate::store::{BoxError, Fault, StoreError};

/// Why a batch has no answer, and what follows from it.
#[derive(Clone, Debug)]
pub(super) enum SqlError {
    /// The server will never take one of its members: find that member.
    BadMember(Cause),
    /// The server cannot read a row of the batch, which was undone: find that row.
    Damaged(Cause),
    /// Another session has locked a row of the batch, which was undone: find that row.
    Locked,
    /// A deadlock or a serialization failure: the batch was undone. Retry all of it.
    Retry,
    /// It was undone.
    NotDone(Cause),
    /// It was undone, and its session is of no more use: the server became a standby, or statements are gone.
    BadSession(Cause),
    /// The records were moved elsewhere, or are still being copied here.
    Moved,
    /// It may have been done.
    Unsure(Cause),
}

/// An error that many callers are told.
pub(super) type Cause = Arc<dyn std::error::Error + Send + Sync>;

pub(super) fn cause(error: impl Into<BoxError>) -> Cause {
    error.into().into()
}

impl SqlError {
    /// What every caller of the batch is told, once nothing more is tried.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::BadMember(cause) => Fault::NotDone(StoreError::Refused(Box::new(cause.clone()))),
            Self::Damaged(cause) => Fault::NotDone(StoreError::Unreadable(Box::new(cause.clone()))),
            // The server is there: a route that passes requests while the store is down must not pass these.
            Self::Locked | Self::Retry => Fault::NotDone(StoreError::Busy),
            Self::Moved => Fault::NotDone(StoreError::Closed),
            Self::NotDone(cause) | Self::BadSession(cause) => {
                Fault::NotDone(StoreError::Unavailable(Box::new(cause.clone())))
            }
            Self::Unsure(cause) => Fault::Unsure(StoreError::Unavailable(Box::new(cause.clone()))),
        }
    }

    /// What the caller of a read is told: a read has changed nothing.
    pub(super) fn fault_of_read(&self) -> Fault {
        match self.fault() {
            Fault::NotDone(error) | Fault::Unsure(error) => Fault::NotDone(error),
        }
    }
}

impl From<Error> for SqlError {
    fn from(error: Error) -> Self {
        let Some(said) = error.as_db_error() else {
            return Self::Unsure(cause(error));
        };
        let ends_session =
            matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        let code = said.code().clone();
        let cause = cause(error);
        match code.code().get(..2).unwrap_or_default() {
            _ if !ends_session && IS_DAMAGE.contains(&code) => Self::Damaged(cause),
            _ if !is_definite(code.code(), ends_session) => Self::Unsure(cause),
            _ if code == SqlState::LOCK_NOT_AVAILABLE => Self::Locked,
            "22" | "23" | "54" => Self::BadMember(cause),
            "40" => Self::Retry,
            "0A" | "25" | "26" | "3F" | "42" => Self::BadSession(cause),
            _ => Self::NotDone(cause),
        }
    }
}

/// What a server says of a page or a file that it cannot read. The session goes on, so the transaction was undone.
const IS_DAMAGE: [SqlState; 4] = [
    SqlState::DATA_CORRUPTED,
    SqlState::INDEX_CORRUPTED,
    SqlState::IO_ERROR,
    SqlState::UNDEFINED_FILE,
];

/// The server gave an answer that does not read.
pub(super) fn unclear(error: impl Into<BoxError>) -> SqlError {
    SqlError::Unsure(cause(error))
}
