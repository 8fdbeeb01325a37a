//! The values that the rules of a route may have.

use std::time::Duration;

use http::StatusCode;

/// Whether a request must have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNeed {
    /// A request without a key runs unguarded.
    Optional,
    /// A request without a key is refused.
    Required,
}

/// Whether the service takes spellings of a path for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// It may. A keyed request whose path is not in [plain form](crate::scope::is_plain_path) is refused; spellings of one
    /// path are one operation, and a key that comes again with another spelling is refused.
    Plain,
    /// It tells every spelling apart, as do all proxies in front of it: each is a path, and an operation, of its own.
    Literal,
}

/// What a duplicate gets while the first request still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// 409 at once.
    Reject,
    /// The answer of the first request, if it comes within this time; else 409.
    Wait(Duration),
}

/// The status for a key that was used for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// 422, as in the IETF draft.
    Unprocessable,
    /// 409, as some clients expect.
    Conflict,
}

/// One status, or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Statuses {
    /// This status.
    One(StatusCode),
    /// Every 5xx. A 5xx says that something failed, not that nothing was executed: use it only for a service that
    /// removes duplicates itself.
    ServerErrors,
}

impl Statuses {
    /// Whether `status` is this status, or of this class.
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
    /// Nothing, until the owner or a person settles the operation.
    Hold,
    /// A client's retry is sent again, with the same key. Only for an upstream that removes duplicates by that key.
    Redrive {
        /// How long after the first send; shorter than the time for which the upstream keeps keys.
        within: Duration,
    },
    /// The failure becomes the final answer.
    Fail,
    /// A client's retry runs again. **This may execute twice**; only for work that is harmless twice.
    Release,
    /// A client's retry first asks the upstream what became of the operation; see `OnceLayer::with_reconciler`.
    Reconcile {
        /// What it means if the upstream says twice that it does not know the operation.
        absent: Absent,
        /// How long after the last possible send these answers count; at least twice the upstream timeout and a lease.
        quiet: Duration,
    },
}

/// What it means if the upstream does not know an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Nothing: the request may still arrive there.
    Hold,
    /// The operation was not executed: release it.
    Release,
}

/// The shape of our own errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// RFC 9457 `application/problem+json`.
    Problem,
    /// The shape of Stripe's API.
    Stripe,
}

/// Whether the rules are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The rules are enforced.
    Enforce,
    /// Every request runs, and the layer counts what the rules would have done.
    Observe,
}

/// What happens to a key that is free, and so old that its answer may have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldKeys {
    /// It runs, as every free key does.
    Run,
    /// It is refused with 412. The age is told by a UUIDv7 key or by `Repeatability-First-Sent`; a key without an age
    /// runs.
    Refuse,
}

/// Whether keys may be, or must be, tokens that the server has issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// No tokens are issued, and every key is opaque.
    Off,
    /// A client may make its own keys; what has the form of a token must be one.
    Optional,
    /// A request needs a key, and the key must be a token.
    Required,
}

/// What happens to requests while the store is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreDown {
    /// Requests with a key are refused with 503.
    Refuse,
    /// Requests run unguarded, and are counted: only if the store certainly cannot be reached, never while it is busy.
    Pass,
}

/// What of an answer is kept for retries. Our own problem answers, and what an operator settles with, are kept whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of it.
    All,
    /// Its status and nothing else: a retry gets 410 with `original_status`.
    Status,
    /// Of a 2xx or 3xx with a `Location`: the status and the `Location`. A retry gets what is there now, if the layer
    /// fetches it; else status and `Location` alone. Every other answer is kept whole.
    Location,
}

/// What an answer means for the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The answer is the final outcome.
    Store,
    /// The answer says that nothing was executed.
    Release,
    /// The answer does not say whether anything was executed.
    Unknown,
}
