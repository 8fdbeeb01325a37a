//! What an error of a Postgres server says about the transaction that it ended.

#[cfg(feature = "sqlx")]
use std::error::Error;

#[cfg(feature = "sqlx")]
use sqlx::error::DatabaseError;

/// Whether it proves that nothing of the transaction was done, also if it is the answer to COMMIT: the server undoes a
/// transaction that gets an error. Not one that ends the session, that says itself that the end is not known, or whose class
/// tells of connections, operators, the system or the server's own state: those may come after the commit was made, or from a
/// pooler that has lost it.
pub(crate) fn is_definite(state: &str, ends_session: bool) -> bool {
    let is_unclear = matches!(state.get(..2), None | Some("08" | "57" | "58" | "XX"));
    !ends_session && !is_unclear && state != "40003"
}

/// The error of a database that is this error, or among its causes. An error that was passed on by anyhow does not show its own
/// type any more, but what is below it.
#[cfg(feature = "sqlx")]
pub(crate) fn database_error<'a>(
    error: &'a (dyn Error + 'static),
    is_meant: impl Fn(&'a dyn DatabaseError) -> bool,
) -> Option<&'a dyn DatabaseError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let whole = error.downcast_ref().and_then(sqlx::Error::as_database_error);
        let found =
            whole.or_else(|| error.downcast_ref::<Box<dyn DatabaseError>>().map(|it| &**it));
        if let Some(found) = found.filter(|found| is_meant(*found)) {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

/// Whether a serialization failure or a deadlock is among the causes.
#[cfg(feature = "sqlx")]
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    let is_conflict =
        |it: &dyn DatabaseError| matches!(it.code().as_deref(), Some("40001" | "40P01"));
    database_error(error, is_conflict).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_undid_is_definite() {
        for undone in ["23503", "40001", "40P01", "OO005", "P0001", "42501", "53100", "25P02"] {
            assert!(is_definite(undone, false), "{undone}");
            assert!(!is_definite(undone, true), "{undone} that ends the session");
        }
        for unclear in ["08006", "08P01", "40003", "57014", "57P01", "58030", "XX000", ""] {
            assert!(!is_definite(unclear, false), "{unclear}");
        }
    }
}
