//! Why a member of a batch has no answer, and whom that concerns.

use rusqlite::ErrorCode;

use crate::record::Record;
use crate::store::sqlite::layout::rows;
use crate::store::{Fault, StoreError};

/// Why a member has no answer.
pub(crate) enum Trouble {
    /// Only this member; nothing was written for it.
    Alone(Fault),
    /// Only this member, but something may have been written for it.
    Member(rusqlite::Error),
    /// The transaction itself.
    Whole(rusqlite::Error),
    /// Another program wrote the file.
    Outside,
}

/// Whom a failed statement concerns.
pub(crate) fn classify(error: rusqlite::Error) -> Trouble {
    match error.sqlite_error_code() {
        None => Trouble::Member(error),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            Trouble::Member(error)
        }
        Some(_) if rows::is_damage(&error) => Trouble::Member(error),
        Some(_) => Trouble::Whole(error),
    }
}

/// What a member that was undone is told.
pub(crate) fn as_refusal(error: rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::StatementChangedRows(_) => StoreError::Unreadable(Box::new(error)),
        error if rows::is_damage(&error) => StoreError::Unreadable(Box::new(error)),
        error => StoreError::Refused(Box::new(error)),
    }
}

/// Before anything is written: a larger body would hold up everyone.
pub(crate) fn demand_fit(record: &Record) -> Result<(), Trouble> {
    let bytes = record.response().map_or(0, |response| response.body_bytes());
    if bytes <= BODY_BYTES_MAX {
        return Ok(());
    }
    let why = format!("a body of {bytes} bytes is over the limit of {BODY_BYTES_MAX}");
    Err(Trouble::Alone(Fault::NotDone(StoreError::Refused(why.into()))))
}

/// The largest body that is kept: one commit must not hold up the others for long.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
