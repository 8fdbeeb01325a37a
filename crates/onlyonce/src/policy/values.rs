//! The values that the rules of a route may have.

use std::time::Duration;

use http::StatusCode;

/// Whether a request must have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeed {
    /// Without one it runs unguarded.
    Optional,
    /// Without one it is refused.
    Required,
}

/// What a duplicate gets while the first still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// 409 at once.
    Reject,
    /// The answer of the first, if it comes in time; else 409.
    Wait(Duration),
}

/// The status for a key that was used for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// 422, as the IETF draft has it.
    Unprocessable,
    /// 409, as some clients expect.
    Conflict,
}

/// One status, or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Statuses {
    /// This one.
    One(StatusCode),
    /// Every 5xx. They say that something failed, not that nothing was executed: only for work whose repetition
    /// its service takes care of.
    ServerErrors,
}

impl Statuses {
    /// Whether `status` is one of them.
    pub fn has(self, status: StatusCode) -> bool {
        match self {
            Self::One(one) => one == status,
            Self::ServerErrors => status.is_server_error(),
        }
    }
}

impl From<StatusCode> for Statuses {
    fn from(status: StatusCode) -> Self {
        Self::One(status)
    }
}

/// What is done about an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// Nothing, until its owner or a person settles it.
    Hold,
    /// A client's retry is sent again, with the same key. Only for an upstream that dedups on it.
    Redrive {
        /// How long after the first send; shorter than the upstream's own window.
        within: Duration,
    },
    /// The failure becomes the final answer.
    Fail,
    /// A client's retry runs again. **This may execute twice**; only for work that is harmless twice.
    Release,
    /// A client's retry first asks what became of it; see `OnceLayer::with_reconciler`.
    Reconcile {
        /// What two answers of "never heard of it" mean.
        absent: Absent,
        /// How long after the last possible send they count; at least twice the upstream timeout and a lease.
        quiet: Duration,
    },
}

/// What it means when the upstream has never heard of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Nothing: it may yet arrive there.
    Hold,
    /// It was not executed: release it.
    Release,
}

/// The shape of our own errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// RFC 9457 `application/problem+json`.
    Problem,
    /// As Stripe's API answers.
    Stripe,
}

/// Whether the rules are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are.
    Enforce,
    /// Every request runs, and what would have happened is counted.
    Observe,
}

/// What happens to requests while the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDown {
    /// 503.
    Refuse,
    /// They run unguarded, and are counted: only where the store surely cannot be reached, never while it is busy.
    Pass,
}

/// What an answer means for the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// It is the final outcome.
    Store,
    /// It says that nothing was executed.
    Release,
    /// It does not say whether anything was executed.
    Unknown,
}
