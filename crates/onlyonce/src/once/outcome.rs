//! What [`Once::run`](crate::Once::run) returns.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::StoreTime;
use crate::store::BoxError;

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome<T> {
    /// The work ran, and this is its value.
    Fresh(T),
    /// The work had run before, and this is the value of that run.
    Replayed(T),
    /// Another caller runs the work now. Call again.
    InProgress {
        /// How long to wait before the next call.
        retry_after: Duration,
    },
    /// The key was used with another payload. Do not retry; use a new key for this operation.
    Reused,
    /// The work may have run: its result is not known. Do not run it again; find out what it did, then settle it.
    Unknown {
        /// When the outcome became unknown.
        since: StoreTime,
        /// The reason, for the caller whose own work it was; `None` for every later caller.
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

/// Two causes are equal if they are the same error value; equal messages are not enough.
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
    /// The work did not happen. Call again with the same key.
    #[error("the work was not done")]
    NotDone(#[source] BoxError),
    /// The work happened, and its value is not kept. Do not run it again.
    #[error("the work was done, and its value is not kept")]
    NotKept,
    /// The outcome was unknown for longer than `hold_max`, or the policy fails unknown outcomes. Do not run the work
    /// again; find out what it did.
    #[error("the outcome of the work stays unknown")]
    GivenUp,
    /// The store gave no answer, and nothing was run. Call again with the same key.
    #[error("the store is unavailable")]
    StoreDown,
    /// A limit of this process is reached, or the process is shutting down. Call again with the same key.
    #[error("too much is under way")]
    Overloaded,
    /// The payload or the value cannot be written or read as JSON. Check its type.
    #[error("a value does not convert")]
    Value(#[source] BoxError),
}
