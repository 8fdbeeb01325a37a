//! What an error of a Postgres server says about the transaction that it ended.

/// Whether it proves that nothing of the transaction was done, also if it is the answer to COMMIT: the server undoes a
/// transaction that gets an error. Not one that ends the session, that says itself that the end is not known, or whose class
/// tells of connections, operators, the system or the server's own state: those may come after the commit was made, or from a
/// pooler that has lost it.
pub(crate) fn is_definite(state: &str, ends_session: bool) -> bool {
    let is_unclear = matches!(state.get(..2), None | Some("08" | "57" | "58" | "XX"));
    !ends_session && !is_unclear && state != "40003"
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
