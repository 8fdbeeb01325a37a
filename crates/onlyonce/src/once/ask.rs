//! What the engine is asked, and how that ends.

use std::sync::Arc;
use std::time::Duration;

use super::counts::Counters;
use super::reconcile::Asking;
use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::policy::{Policy, StoreDown};
use crate::record::{KeyText, Response};
use crate::scope::{OperationId, Principal};
use crate::velocity::Allowance;

/// One request for an operation, as the engine needs it.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: OperationId,
    pub(crate) key: KeyText,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) principal: Principal,
    /// What else tells operations apart: see `ChangedPrincipals::place`. `None` where programs choose principals and keys.
    pub(crate) place: Option<u64>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: Arc<Counters>,
    /// The reconciler that `recovery = "reconcile"` asks, and the headers to ask with.
    pub(crate) asking: Option<Asking>,
    /// How and where the request is sent, for a later question about it: see `Draft::target`.
    pub(crate) target: Arc<str>,
    /// The response with which `recovery = "fail"` completes an operation that a dead owner left.
    pub(crate) failure: Arc<Response>,
    /// By when the client needs its answer, on this node's boot clock.
    pub(crate) ends_at: Option<Duration>,
    /// The answer if the key is free, where this request may not begin the operation.
    pub(crate) if_free: Option<Refusal>,
    /// What the operation counts for if it begins.
    pub(crate) allowances: Vec<Allowance>,
}

impl Ask {
    /// How long the answer is still of use to the client.
    pub(crate) fn left(&self, boot: Duration) -> Option<Duration> {
        self.ends_at.map(|end| end.saturating_sub(boot))
    }

    /// Whether the client's deadline has passed.
    pub(crate) fn is_late(&self, boot: Duration) -> bool {
        self.left(boot) == Some(Duration::ZERO)
    }

    /// Why the operation may not be begun, even if its key is free.
    pub(crate) fn barred(&self, boot: Duration) -> Option<Refusal> {
        match self.is_late(boot) {
            true => Some(Refusal::DeadlineExceeded),
            false => self.if_free.clone(),
        }
    }
}

impl Counters {
    /// Counts how a request ended. An execution was counted when it began.
    pub(crate) fn ended<T>(&self, ended: &Ended<T>) {
        match ended {
            Ended::Fresh(_) => {}
            Ended::Unclear(_) | Ended::Overdue | Ended::Unsettled => self.unknown.one(),
            Ended::Refused(refusal) => self.refused_by(refusal),
        }
    }

    /// Counts a request that was not executed.
    pub(crate) fn refused_by(&self, refusal: &Refusal) {
        let counter = match refusal {
            Refusal::Replay(_) => &self.replayed,
            Refusal::Reused | Refusal::Respelled => &self.reused,
            Refusal::InProgress => &self.in_progress,
            Refusal::Unknown { .. } | Refusal::Unreadable => &self.unknown,
            Refusal::StoreDown { .. } => &self.store_down,
            Refusal::Overloaded => &self.overloaded,
            Refusal::DeadlineExceeded => &self.deadline_exceeded,
            Refusal::KeyExpired => &self.key_expired,
            Refusal::TokenExpired => &self.refused,
            Refusal::VelocityExceeded { .. } | Refusal::TooManyKeys { .. } => {
                &self.velocity_exceeded
            }
            Refusal::Unauthorized(_) | Refusal::AuthorizationUnknown => &self.unauthorized,
        };
        counter.one();
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    /// This request executed the operation, and this is its answer.
    Fresh(T),
    /// This request executed the operation, and this is what its caller gets in place of a whole answer: unknown.
    Unclear(T),
    /// This request did not execute the operation.
    Refused(Refusal),
    /// This request executes the operation, and its deadline has passed before the answer came: unknown so far.
    Overdue,
    /// This request executed the operation, and the store has not taken the outcome: unknown.
    Unsettled,
}

/// The answer to a request that did not execute its operation.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The stored answer.
    Replay(Arc<Response>),
    /// The key was used for another request.
    Reused,
    /// The key was used for this request, with another spelling of its path.
    Respelled,
    /// The first request still runs.
    InProgress,
    /// The operation was sent, and its outcome is not known.
    Unknown { since: StoreTime },
    /// There is a record, and it cannot be read: it may be of an operation that was executed.
    Unreadable,
    /// The store gave no answer. Unreachable: it is certain that the claim did not reach the store.
    StoreDown { is_unreachable: bool, policy: StoreDown },
    /// A limit of this process is reached, or the process is shutting down.
    Overloaded,
    /// The client's deadline had passed before the operation was begun.
    DeadlineExceeded,
    /// The key is free, and so old that its answer may have expired.
    KeyExpired,
    /// The key is free, and is a token that has expired.
    TokenExpired,
    /// The key is free, and a limit of the route is used up for so long.
    VelocityExceeded { wait: Duration },
    /// The key is free, and its caller has as many keys as the route keeps, for so long.
    TooManyKeys { wait: Duration },
    /// The caller's credentials no longer hold, which is told by this answer of the service.
    Unauthorized(Arc<Response>),
    /// Whether the caller's credentials still hold is not known.
    AuthorizationUnknown,
}

impl Refusal {
    /// Of a request that is not the one whose fingerprint was stored.
    pub(super) fn reused(stored: &Fingerprint, asked: &Fingerprint) -> Self {
        match stored.is_respelled(asked) {
            true => Self::Respelled,
            false => Self::Reused,
        }
    }
}
