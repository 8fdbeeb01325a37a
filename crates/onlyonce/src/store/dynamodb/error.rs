//! Why a store in DynamoDB could not be opened, and what to do about it.

use crate::store::BoxError;

/// Why a store in DynamoDB could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DynamoOpenError {
    /// The address does not read. Write `dynamodb:TABLE`, and after a `?` any of `region`, `endpoint`, `prefix`, `parts`
    /// and `sweep`.
    #[error("{why}: write dynamodb:TABLE?region=…&endpoint=…&prefix=…")]
    Address {
        /// What does not read.
        why: &'static str,
    },
    /// The prefix does not read. Use letters, digits and `_ - .`.
    #[error("the prefix {prefix:?} is not 1 to 64 letters, digits and _ - .")]
    Prefix {
        /// What was given.
        prefix: String,
    },
    /// The table cannot be asked for: the network, the credentials, or a permission is missing. The source says which.
    #[error(
        "DynamoDB cannot be reached, or refuses us: give credentials, a region and the permissions of `onlyonce dynamodb template`"
    )]
    Unreachable(#[source] BoxError),
    /// There is no such table. `onlyonce migrate --to dynamodb:TABLE` makes one, `onlyonce dynamodb template` describes it.
    #[error(
        "there is no table {table}: make it with `onlyonce migrate --to`, or `onlyonce dynamodb template`"
    )]
    NoTable {
        /// Its name.
        table: String,
    },
    /// The table was made for something else, or is not ready. Make one as `onlyonce dynamodb template` describes it.
    #[error(
        "the table {table} cannot be used: {why}; `onlyonce dynamodb template` describes one that can"
    )]
    WrongTable {
        /// Its name.
        table: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The table is written in several regions, where a condition holds in one of them only. Use a table of one region.
    #[error(
        "the table {table} is a global table: two regions could both win a key, and nothing can be promised; use a table of one region"
    )]
    GlobalTable {
        /// Its name.
        table: String,
    },
    /// Records of another store are being copied there. Repeat the migration: it goes on where it stopped.
    #[error("the table {table} is being filled from {from}: repeat that migration to its end")]
    Importing {
        /// Its name.
        table: String,
        /// The other store.
        from: String,
    },
    /// There are records already. Use another table, or another prefix.
    #[error("the table {table} has records already: use another table, or another prefix")]
    NotEmpty {
        /// Its name.
        table: String,
    },
    /// The operating system gives no thread. The source says why.
    #[error("no thread for the connections to DynamoDB")]
    Thread(#[source] std::io::Error),
    /// The thread of the store ended while it was opened.
    #[error("the thread of the store has ended")]
    Ended,
}
