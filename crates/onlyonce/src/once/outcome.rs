//! What the caller of [`Once::run`](crate::Once::run) is told.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::StoreTime;
use crate::store::BoxError;

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome<T> {
    /// The work ran, and this is its value.
    Fresh(T),
    /// It had run before; this is the value of that time.
    Replayed(T),
    /// It runs elsewhere. Ask again.
    InProgress {
        /// When.
        retry_after: Duration,
    },
    /// The key belongs to another payload. Do not retry; use a key of its own.
    Reused,
    /// It may have run, and nobody knows. Do not run it again; find out what it did, then settle it.
    Unknown {
        /// Since when.
        since: StoreTime,
        /// Why, for the caller whose own work it was; `None` for every later one.
        cause: Option<Cause>,
    },
}

/// Why the outcome of an operation is unknown: the error of its work, a panic, a timeout, or a store that did not
/// take the outcome.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

impl Cause {
    pub(super) fn new(error: BoxError) -> Self {
        Self(error.into())
    }

    /// The error itself.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.0
    }
}

/// Equal if it is the same error, not one that says the same.
impl PartialEq for Cause {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cause {}

/// Why an operation has no outcome to give.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The work did not happen. Try again with the same key.
    #[error("the work was not done")]
    NotDone(#[source] BoxError),
    /// The work happened, and its value is not kept. Do not run it again.
    #[error("the work was done, and its value is not kept")]
    NotKept,
    /// The outcome was unknown for good. Do not run it again; look at what it did.
    #[error("the outcome of the work stays unknown")]
    GivenUp,
    /// The store gave no answer; nothing was run. Try again with the same key.
    #[error("the store is unavailable")]
    StoreDown,
    /// Too much is under way, or the process is shutting down. Try again with the same key.
    #[error("too much is under way")]
    Overloaded,
    /// The payload or the value cannot be written or read as JSON. Check its type.
    #[error("a value does not convert")]
    Value(#[source] BoxError),
}
