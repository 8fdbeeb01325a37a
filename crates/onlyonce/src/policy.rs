//! What a route asks of its keys, its answers and its failures.

use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

use crate::fingerprint::FingerprintRules;
use crate::key::{KeyFormat, KeyRules, KeySource};
use crate::scope::ScopePart;

/// The rules of one route. [`Policy::default`] is safe for anything; the presets know their trade.
///
/// ```
/// use std::time::Duration;
/// use onlyonce::policy::{InFlight, Policy};
///
/// let policy = Policy::payments().with_in_flight(InFlight::Wait(Duration::from_secs(5)));
/// assert!(policy.check().is_ok());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// The name of the route in records and counts.
    pub route: Arc<str>,
    /// The methods that are guarded; POST and PATCH.
    pub methods: Vec<Method>,
    /// Whether a request without a key is refused; it is not, and then runs unguarded.
    pub key: KeyNeed,
    /// Where the key is found; the header `Idempotency-Key`.
    pub key_from: Vec<KeySource>,
    /// What a key looks like; 1 to 255 characters.
    pub key_rules: KeyRules,
    /// What makes two equal keys two operations; principal, host, method and path.
    pub scope: Vec<ScopePart>,
    /// What makes two requests "the same"; the canonical form of their bodies.
    pub fingerprint: FingerprintRules,
    /// How long an answer is kept, from completion; 24 hours.
    pub ttl: Duration,
    /// What a duplicate gets while the first still runs; 409.
    pub in_flight: InFlight,
    /// The status for a key that was used for another request; 422.
    pub mismatch: Mismatch,
    /// Answers that say "not executed" and free the key; 401 403 407 408 421 425 429.
    pub not_executed: Vec<Statuses>,
    /// What is done about an unknown outcome; it is held.
    pub recovery: Recovery,
    /// How long an owner may be silent; 30 seconds.
    pub lease: Duration,
    /// After how long an unknown outcome is closed for good; 30 days.
    pub hold_max: Duration,
    /// How long the inner service may take until its whole answer is there; 30 seconds.
    pub upstream_timeout: Duration,
    /// The largest request that is taken; 1 MiB.
    pub request_bytes_max: usize,
    /// The largest answer that is kept for replay; 1 MiB.
    pub response_bytes_max: usize,
    /// What happens to requests while the store is down; they are refused.
    pub store_down: StoreDown,
    /// The shape of our own errors; RFC 9457 problem documents.
    pub errors: Errors,
    /// Whether the rules are enforced, or only watched; enforced.
    pub mode: Mode,
}

impl Policy {
    /// Charges, transfers, orders: a key of 16 to 255 characters is required, answers are kept 24 hours.
    pub fn payments() -> Self {
        let mut policy = Self { key: KeyNeed::Required, ..Self::named("payments") };
        policy.key_rules.length = (16, 255);
        policy
    }

    /// Accounts and forms: answers are kept one hour.
    pub fn signup() -> Self {
        Self { ttl: HOUR, ..Self::named("signup") }
    }

    /// Events that a sender delivers again for days: answers are kept seven days, and a delivery that failed is
    /// run again when it comes again.
    ///
    /// 5xx, 408 and 429 free the key, and so does a delivery without a whole answer (a timeout, a panic, a broken
    /// connection). 2xx, 3xx and other 4xx are kept, but for 409 with `Retry-After`. **So a handler may run twice for one event**: one that failed
    /// after half of its work, or is still at it when its time is over. Its own dedup is its business.
    pub fn webhook() -> Self {
        Self {
            ttl: 7 * DAY,
            not_executed: vec![
                StatusCode::REQUEST_TIMEOUT.into(),
                StatusCode::TOO_MANY_REQUESTS.into(),
                Statuses::ServerErrors,
            ],
            recovery: Recovery::Release,
            ..Self::named("webhook")
        }
    }

    /// Long jobs: answers are kept 30 days, and unknown outcomes held 60.
    pub fn job() -> Self {
        Self { ttl: 30 * DAY, hold_max: 60 * DAY, ..Self::named("job") }
    }

    fn named(route: &str) -> Self {
        Self { route: route.into(), ..Self::default() }
    }

    /// Names the route in records and counts. Default: the preset's name.
    pub fn with_route(self, route: &str) -> Self {
        Self { route: route.into(), ..self }
    }

    /// Guards these methods. Default: POST and PATCH. A safe method here would freeze its first answer.
    pub fn with_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        Self { methods: methods.into_iter().collect(), ..self }
    }

    /// Refuses requests without a key. Default: optional, they run unguarded.
    pub fn with_key(self, key: KeyNeed) -> Self {
        Self { key, ..self }
    }

    /// Finds the key elsewhere. Default: the header `Idempotency-Key`.
    pub fn with_key_from(self, key_from: impl IntoIterator<Item = KeySource>) -> Self {
        Self { key_from: key_from.into_iter().collect(), ..self }
    }

    /// Asks keys to be UUIDs, or not. Default: any.
    pub fn with_key_format(mut self, format: KeyFormat) -> Self {
        self.key_rules.format = format;
        self
    }

    /// Where a key counts. Default: principal, host, method and path. Add a [`ScopePart::Header`] for what your
    /// service routes by. A change makes every live key a fresh one.
    pub fn with_scope(self, scope: impl IntoIterator<Item = ScopePart>) -> Self {
        Self { scope: scope.into_iter().collect(), ..self }
    }

    /// Compares requests by other rules. Default: canonical bodies.
    pub fn with_fingerprint(self, fingerprint: FingerprintRules) -> Self {
        Self { fingerprint, ..self }
    }

    /// Keeps answers for `ttl` after completion. Default: 24 hours. It must outlast your clients' retries.
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// What a duplicate gets while the first still runs. Default: reject with 409.
    pub fn with_in_flight(self, in_flight: InFlight) -> Self {
        Self { in_flight, ..self }
    }

    /// Answers that free the key. Default: 401, 403, 407, 408, 421, 425 and 429. After any other answer a retry
    /// never runs again.
    pub fn with_not_executed(self, statuses: impl IntoIterator<Item = Statuses>) -> Self {
        Self { not_executed: statuses.into_iter().collect(), ..self }
    }

    /// What is done about an unknown outcome. Default: hold. Anything else is a promise about your upstream.
    pub fn with_recovery(self, recovery: Recovery) -> Self {
        Self { recovery, ..self }
    }

    /// How long an owner may be silent. Default: 30 seconds.
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Bounds the inner service. Default: 30 seconds; what takes longer ends as an unknown outcome.
    pub fn with_upstream_timeout(self, upstream_timeout: Duration) -> Self {
        Self { upstream_timeout, ..self }
    }

    /// Refuses larger requests with 413. Default: 1 MiB.
    pub fn with_request_bytes_max(self, request_bytes_max: usize) -> Self {
        Self { request_bytes_max, ..self }
    }

    /// Streams larger answers without keeping them: a retry gets 410. Default: 1 MiB.
    pub fn with_response_bytes_max(self, response_bytes_max: usize) -> Self {
        Self { response_bytes_max, ..self }
    }

    /// What happens while the store is down. Default: refuse. `Pass` gives up the promise meanwhile.
    pub fn with_store_down(self, store_down: StoreDown) -> Self {
        Self { store_down, ..self }
    }

    /// The shape of our own errors. Default: RFC 9457 problem documents.
    pub fn with_errors(self, errors: Errors) -> Self {
        Self { errors, ..self }
    }

    /// Enforces the rules, or only watches what they would do. Default: enforce.
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Whether the policy contradicts itself.
    pub fn check(&self) -> Result<(), PolicyError> {
        let (length_min, length_max) = self.key_rules.length;
        let durations =
            [("lease", self.lease), ("upstream_timeout", self.upstream_timeout), ("ttl", self.ttl)];
        if let Some((name, _)) =
            durations.into_iter().find(|(_, duration)| duration.as_millis() == 0)
        {
            return Err(PolicyError::Zero { name });
        }
        if length_min == 0 || length_min > length_max {
            return Err(PolicyError::KeyLength { length_min, length_max });
        }
        if self.hold_max < self.ttl {
            return Err(PolicyError::HoldShorterThanTtl);
        }
        if self.key_from.is_empty() {
            return Err(PolicyError::NoKeySource);
        }
        let quiet_min = self.upstream_timeout.saturating_mul(2).saturating_add(self.lease);
        match self.recovery {
            Recovery::Reconcile { quiet, .. } if quiet < quiet_min => {
                Err(PolicyError::QuietTooShort)
            }
            _ => Ok(()),
        }
    }

    /// What an answer of the inner service means for the record.
    ///
    /// Stored: 2xx, 3xx, 500 and other 5xx, and every 4xx but those that say "not executed". Released:
    /// those, and 503 or 409 with `Retry-After`. Unknown: 502, 504, 503 without it, and 503 with the `Via` of
    /// another proxy, because a proxy behind us may have sent the request on: Varnish answers 503 with
    /// `Retry-After` when its backend dies after it executed.
    pub fn keeps(&self, status: StatusCode, headers: &HeaderMap) -> Keeps {
        let retry_after = headers.contains_key(header::RETRY_AFTER);
        match status {
            _ if self.not_executed.iter().any(|statuses| statuses.has(status)) => Keeps::Release,
            StatusCode::CONFLICT if retry_after => Keeps::Release,
            StatusCode::SERVICE_UNAVAILABLE if retry_after && !is_relayed(headers) => {
                Keeps::Release
            }
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Keeps::Unknown,
            _ => Keeps::Store,
        }
    }
}

/// Whether a proxy other than our gateway passed the answer on, or made it.
pub(crate) fn is_relayed(headers: &HeaderMap) -> bool {
    headers.get_all(header::VIA).iter().any(|via| via != VIA)
}

/// What the gateway calls itself in the `Via` header.
pub const VIA: HeaderValue = HeaderValue::from_static("1.1 onlyonce");

impl Default for Policy {
    fn default() -> Self {
        Self {
            route: "default".into(),
            methods: vec![Method::POST, Method::PATCH],
            key: KeyNeed::Optional,
            key_from: vec![KeySource::Header(IDEMPOTENCY_KEY)],
            key_rules: KeyRules::default(),
            scope: ScopePart::DEFAULT.to_vec(),
            fingerprint: FingerprintRules::default(),
            ttl: DAY,
            in_flight: InFlight::Reject,
            mismatch: Mismatch::Unprocessable,
            not_executed: NOT_EXECUTED.map(Statuses::One).to_vec(),
            recovery: Recovery::Hold,
            lease: Duration::from_secs(30),
            hold_max: 30 * DAY,
            upstream_timeout: Duration::from_secs(30),
            request_bytes_max: MIB,
            response_bytes_max: MIB,
            store_down: StoreDown::Refuse,
            errors: Errors::Problem,
            mode: Mode::Enforce,
        }
    }
}

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

/// How a policy contradicts itself. Change the value it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Give it at least a millisecond.
    #[error("{name} must not be zero")]
    Zero {
        /// Which.
        name: &'static str,
    },
    /// Put the smaller one first; a key has at least one character.
    #[error("key_length [{length_min}, {length_max}] admits no key")]
    KeyLength {
        /// The shortest.
        length_min: usize,
        /// The longest.
        length_max: usize,
    },
    /// Hold unknown outcomes at least as long as answers.
    #[error("hold_max is shorter than ttl")]
    HoldShorterThanTtl,
    /// Name at least one place.
    #[error("key_from names no place to find the key")]
    NoKeySource,
    /// Wait longer before "never heard of it" is believed.
    #[error("quiet is shorter than twice upstream_timeout and a lease")]
    QuietTooShort,
}

/// The header of the IETF draft.
pub const IDEMPOTENCY_KEY: http::HeaderName = http::HeaderName::from_static("idempotency-key");

const NOT_EXECUTED: [StatusCode; 7] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
];
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MIB: usize = 1024 * 1024;
