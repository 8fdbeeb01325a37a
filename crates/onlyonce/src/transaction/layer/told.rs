//! What a client is told of an error of the database. What may have been done, now or earlier, is never told as not done.

use http::StatusCode;

use crate::problem::Problem;
use crate::transaction::TransactionError;

/// Of an operation that was not begun.
pub(super) fn not_begun(error: &TransactionError) -> Problem {
    match error {
        TransactionError::Reply(_) | TransactionError::AlreadyDone(_) => Problem::already_done(),
        TransactionError::WithoutAnswer(_) => Problem::without_answer(),
        TransactionError::Unsure { .. } => Problem::unsettled(),
        TransactionError::NotInstalled(_) => Problem::not_set_up(
            "The service's database has no tables for idempotency keys: `onlyonce migrate` makes them.",
        ),
        TransactionError::OtherVersion => Problem::not_set_up(
            "The service's database has the tables of another version of onlyonce.",
        ),
        TransactionError::NotAllowed(_) => Problem::not_set_up(
            "The service has no right to the tables for idempotency keys in its database.",
        ),
        TransactionError::Pooled(_) => Problem::not_set_up(
            "The service is connected to its database by a pooler that does not support what it needs.",
        ),
        // Each of them has undone what it did.
        TransactionError::NotDone(_)
        | TransactionError::EndedByWork(_)
        | TransactionError::Setting { .. } => Problem::store_unavailable(),
    }
}

/// Of an answer that was not committed.
pub(super) fn not_completed(error: &TransactionError) -> Problem {
    match error {
        TransactionError::Unsure { .. } => Problem::unsettled(),
        TransactionError::EndedByWork(_) => Problem::ended_by_work(),
        TransactionError::Reply(_) | TransactionError::AlreadyDone(_) => Problem::already_done(),
        TransactionError::WithoutAnswer(_) => Problem::without_answer(),
        TransactionError::NotDone(_)
        | TransactionError::NotInstalled(_)
        | TransactionError::OtherVersion
        | TransactionError::NotAllowed(_)
        | TransactionError::Pooled(_)
        | TransactionError::Setting { .. } => {
            let why = "The database did not take the answer.";
            Problem::rolled_back(StatusCode::INTERNAL_SERVER_ERROR, why)
        }
    }
}
