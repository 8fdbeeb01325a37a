//! Why a job of a batch has no answer, and whether that fails the job alone or the whole batch.

use rusqlite::ErrorCode;

use crate::record::Record;
use crate::store::sqlite::layout::rows;
use crate::store::{Fault, StoreError};

/// Why a job has no answer.
pub(crate) enum JobError {
    /// Only this job failed, and nothing was written for it.
    Job(Fault),
    /// A statement of this job failed. Rows may have been written for it: they must be rolled back.
    Statement(rusqlite::Error),
    /// The transaction failed, and with it every job of the batch.
    Transaction(rusqlite::Error),
    /// Another program wrote the file, so the index no longer matches it. Nothing may be written.
    OutsideWrite,
}

/// Whether a failed statement concerns its job alone or the whole transaction.
pub(crate) fn classify(error: rusqlite::Error) -> JobError {
    match error.sqlite_error_code() {
        None => JobError::Statement(error),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            JobError::Statement(error)
        }
        Some(_) if rows::is_damage(&error) => JobError::Statement(error),
        Some(_) => JobError::Transaction(error),
    }
}

/// The error for a job whose statements were rolled back.
pub(crate) fn store_error_of(error: rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::StatementChangedRows(_) => StoreError::Unreadable(Box::new(error)),
        error if rows::is_damage(&error) => StoreError::Unreadable(Box::new(error)),
        error => StoreError::Refused(Box::new(error)),
    }
}

/// Refuses a body over the limit before anything is written.
pub(crate) fn require_body_fits(record: &Record) -> Result<(), JobError> {
    let bytes = record.response().map_or(0, |response| response.body_bytes());
    if bytes <= BODY_BYTES_MAX {
        return Ok(());
    }
    let why = format!("a body of {bytes} bytes is over the limit of {BODY_BYTES_MAX}");
    Err(JobError::Job(Fault::NotDone(StoreError::Refused(why.into()))))
}

/// The largest body that is kept: every job of the batch waits until the body is on disk.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 20;
