//! What an error says of a statement that was sent.

use std::sync::Arc;

use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use crate::store::{BoxError, Fault, StoreError};

/// Why a batch has no answer, and what follows from it.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// One of its members will never be taken: find it.
    Member(Cause),
    /// Someone was faster with one of its members, and it was undone.
    Raced(Cause),
    /// Someone else has locked what one of its members needs, and it was undone: find it.
    Blocked,
    /// It met others and was undone: the same again.
    Again,
    /// It was undone.
    NotDone(Cause),
    /// It was undone, and its session is of no more use: a server that became a standby, statements that are gone.
    Session(Cause),
    /// It may have been done.
    Unsure(Cause),
}

/// An error that many are told.
#[derive(Clone, Debug)]
pub(super) struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl Cause {
    pub(super) fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into().into())
    }

    pub(super) fn unavailable(&self) -> StoreError {
        StoreError::Unavailable(Box::new(self.clone()))
    }

    pub(super) fn refused(&self) -> StoreError {
        StoreError::Refused(Box::new(self.clone()))
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl Trouble {
    /// What every member is told, once nothing more is tried.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::Member(cause) | Self::Raced(cause) => Fault::NotDone(cause.refused()),
            // The server is there, and others hold what is needed: a route that passes requests while the store is
            // down must not pass these.
            Self::Blocked | Self::Again => Fault::NotDone(StoreError::Busy),
            Self::NotDone(cause) | Self::Session(cause) => Fault::NotDone(cause.unavailable()),
            Self::Unsure(cause) => Fault::Unsure(cause.unavailable()),
        }
    }

    /// What a read is told: it has changed nothing.
    pub(super) fn fault_of_read(&self) -> Fault {
        match self.fault() {
            Fault::NotDone(error) | Fault::Unsure(error) => Fault::NotDone(error),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let Some(said) = error.as_db_error() else {
            return Self::Unsure(Cause::new(error));
        };
        let ends_session =
            matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        let code = said.code().clone();
        let cause = Cause::new(error);
        match class(&code) {
            _ if ends_session || code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => {
                Self::Unsure(cause)
            }
            _ if code == SqlState::UNIQUE_VIOLATION => Self::Raced(cause),
            _ if code == SqlState::LOCK_NOT_AVAILABLE => Self::Blocked,
            "22" | "23" | "54" => Self::Member(cause),
            "40" => Self::Again,
            "0A" | "25" | "26" | "3F" | "42" => Self::Session(cause),
            "08" | "57" | "58" | "XX" => Self::Unsure(cause),
            _ => Self::NotDone(cause),
        }
    }
}

fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}
