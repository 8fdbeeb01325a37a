//! What a route asks of its keys, its answers and its failures.

mod presets;
mod read;
mod redact;
mod values;

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

pub use self::values::{
    Absent, Errors, InFlight, Keep, Keeps, KeyNeed, Mismatch, Mode, OldKeys, Paths, Recovery,
    Statuses, StoreDown, Tokens,
};
use crate::fingerprint::{FingerprintRules, Pointer};
use crate::key::{KEY_BYTES_MAX, KeyFormat, KeyRules, KeySource, KeySyntax};
use crate::scope::ScopePart;
use crate::store::audit::IDS_MAX;
use crate::velocity::Velocity;

/// The rules of one route. [`Policy::default`] is safe for every route; the presets are for common kinds of routes.
///
/// Every policy is valid: a value that would contradict another, or leave nothing to do, is replaced by the nearest
/// one that does not. Each `with_*` says its default, what it replaces, and the risk of a change.
///
/// ```
/// use std::time::Duration;
/// use onlyonce::policy::{InFlight, Policy};
///
/// let policy = Policy::payments().with_in_flight(InFlight::Wait(Duration::from_secs(5)));
/// assert_eq!(policy.ttl(), Duration::from_secs(24 * 60 * 60));
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    route: Arc<str>,
    methods: Vec<Method>,
    key: KeyNeed,
    /// Never empty.
    key_from: Vec<KeySource>,
    /// The length admits at least one key.
    key_rules: KeyRules,
    scope: Vec<ScopePart>,
    paths: Paths,
    fingerprint: FingerprintRules,
    /// Never zero.
    ttl: Duration,
    in_flight: InFlight,
    mismatch: Mismatch,
    not_executed: Vec<Statuses>,
    /// A quiet time as it was asked for: [`recovery`](Self::recovery) makes it long enough.
    recovery: Recovery,
    /// Never zero.
    lease: Duration,
    /// As it was asked for: [`hold_max`](Self::hold_max) is not below `ttl`.
    hold_max: Duration,
    /// Never zero.
    upstream_timeout: Duration,
    request_bytes_max: usize,
    response_bytes_max: usize,
    store_down: StoreDown,
    errors: Errors,
    mode: Mode,
    audit_ids: Vec<Pointer>,
    deadline_from: Vec<HeaderName>,
    old_keys: OldKeys,
    is_json_rpc: bool,
    tokens: Tokens,
    velocity: Vec<Velocity>,
    live_keys_max: Option<NonZeroU32>,
    live_bytes_max: Option<NonZeroU64>,
    keep: Keep,
    redact: Vec<Pointer>,
}

/// Changes.
impl Policy {
    /// Names the route in records and counts. Default: the preset's name. After a change, unknown outcomes under the
    /// old name are held for 30 days, and no reconciler is asked about them in the background.
    #[must_use]
    pub fn with_route(self, route: &str) -> Self {
        Self { route: route.into(), ..self }
    }

    /// Guards these methods. Default: POST and PATCH. A guarded GET would be answered with its first answer for as
    /// long as the key is kept.
    #[must_use]
    pub fn with_methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        Self { methods: methods.into_iter().collect(), ..self }
    }

    /// Whether a request must have a key. Default: optional; a request without a key runs unguarded.
    #[must_use]
    pub fn with_key(self, key: KeyNeed) -> Self {
        Self { key, ..self }
    }

    /// Where the key is found. Default: the header `Idempotency-Key`, which also stands for an empty list. A client
    /// that sends its key elsewhere runs unguarded, or is refused where a key is required.
    #[must_use]
    pub fn with_key_from(self, key_from: impl IntoIterator<Item = KeySource>) -> Self {
        let mut key_from: Vec<_> = key_from.into_iter().collect();
        if key_from.is_empty() {
            key_from.push(KeySource::default());
        }
        Self { key_from, ..self }
    }

    /// What a key must look like. Default: [`KeyRules::default`]. The length is brought into bounds as by
    /// [`with_key_length`](Self::with_key_length). Stricter rules refuse retries of keys that were taken before.
    #[must_use]
    pub fn with_key_rules(self, key_rules: KeyRules) -> Self {
        let (least, most) = key_rules.length;
        Self { key_rules, ..self }.with_key_length(least, most)
    }

    /// The least and the most characters of a key. Default: 1 and 255, which are also the bounds of both; `most` is
    /// not below `least`. Short keys collide.
    #[must_use]
    pub fn with_key_length(mut self, least: usize, most: usize) -> Self {
        let least = least.clamp(1, KEY_BYTES_MAX);
        self.key_rules.length = (least, most.clamp(least, KEY_BYTES_MAX));
        self
    }

    /// The format of a key. Default: any. A stricter format refuses retries of keys that were taken before.
    #[must_use]
    pub fn with_key_format(mut self, format: KeyFormat) -> Self {
        self.key_rules.format = format;
        self
    }

    /// How a key is written in a header. Default: lenient, `"abc"` and `abc` are one key. Strict refuses clients
    /// that do not quote.
    #[must_use]
    pub fn with_key_syntax(mut self, syntax: KeySyntax) -> Self {
        self.key_rules.syntax = syntax;
        self
    }

    /// What besides the key tells two operations apart. Default: principal, host, method and path. Add a
    /// [`ScopePart::Header`] for each header that your service routes by. A change makes every live key a new one, so
    /// that a retry runs again.
    #[must_use]
    pub fn with_scope(self, scope: impl IntoIterator<Item = ScopePart>) -> Self {
        Self { scope: scope.into_iter().collect(), ..self }
    }

    /// Whether the service takes spellings of a path for one another. Default: it may. With [`Paths::Literal`] in front of
    /// a service that does, one key executes once for each spelling. A change makes every live key a new one.
    #[must_use]
    pub fn with_paths(self, paths: Paths) -> Self {
        Self { paths, ..self }
    }

    /// What makes two requests with one key the same. Default: the canonical form of the body. Excluding a field
    /// means that a request with another value there gets the first answer.
    #[must_use]
    pub fn with_fingerprint(self, fingerprint: FingerprintRules) -> Self {
        Self { fingerprint, ..self }
    }

    /// Keeps answers for `ttl` after completion. Default: 24 hours; at least a millisecond. A client that retries
    /// later runs the operation again.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self { ttl: ttl.max(MILLISECOND), ..self }
    }

    /// What a duplicate gets while the first request still runs. Default: reject with 409. A duplicate that waits
    /// holds its connection meanwhile.
    #[must_use]
    pub fn with_in_flight(self, in_flight: InFlight) -> Self {
        Self { in_flight, ..self }
    }

    /// The status for a key that was used for another request. Default: 422. Clients that retry every 409 would
    /// retry that one for nothing.
    #[must_use]
    pub fn with_mismatch(self, mismatch: Mismatch) -> Self {
        Self { mismatch, ..self }
    }

    /// Answers that say "not executed" and free the key. Default: 401, 403, 407, 408, 421, 425 and 429. A status
    /// that your service also sends after it executed something lets a retry run again.
    ///
    /// **A timeout inside of the layer must not answer 408**, as the `TimeoutLayer` of tower-http does: it drops a handler that
    /// has begun, and the retry runs it again. Let it answer 504, or leave 408 out of this list. A 408 to a request that has
    /// a [deadline](Self::with_deadline_from) frees no key: it is judged as a 504.
    #[must_use]
    pub fn with_not_executed(self, statuses: impl IntoIterator<Item = Statuses>) -> Self {
        Self { not_executed: statuses.into_iter().collect(), ..self }
    }

    /// What is done about an unknown outcome. Default: hold. Every other choice is a promise about your upstream. A
    /// quiet time of [`Recovery::Reconcile`] is at least twice the upstream timeout and a lease.
    #[must_use]
    pub fn with_recovery(self, recovery: Recovery) -> Self {
        Self { recovery, ..self }
    }

    /// How long an owner may be silent before its operation is marked unknown. Default: 30 seconds; at least a
    /// millisecond. A lease that is shorter than a pause of the process makes operations unknown; a long one delays
    /// the answer to retries after a crash.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease: lease.max(MILLISECOND), ..self }
    }

    /// After how long an unknown outcome is closed for good, with a 502 whose `retry` is `"never"`. Default: 30 days;
    /// at least the ttl. A short time closes outcomes before a person has looked at them.
    #[must_use]
    pub fn with_hold_max(self, hold_max: Duration) -> Self {
        Self { hold_max, ..self }
    }

    /// How long the inner service may take until its whole answer is there. Default: 30 seconds; at least a
    /// millisecond. What takes longer ends as an unknown outcome.
    #[must_use]
    pub fn with_upstream_timeout(self, upstream_timeout: Duration) -> Self {
        Self { upstream_timeout: upstream_timeout.max(MILLISECOND), ..self }
    }

    /// Refuses larger requests with 413. Default: 1 MiB. A request is held in memory whole.
    #[must_use]
    pub fn with_request_bytes_max(self, request_bytes_max: usize) -> Self {
        Self { request_bytes_max, ..self }
    }

    /// Streams larger answers without keeping them: a retry gets 410. Default: 1 MiB. A kept answer is held in memory
    /// and in the store whole.
    #[must_use]
    pub fn with_response_bytes_max(self, response_bytes_max: usize) -> Self {
        Self { response_bytes_max, ..self }
    }

    /// What happens to requests while the store is down. Default: refuse with 503. With `Pass` a retry may run
    /// twice while the store is down.
    #[must_use]
    pub fn with_store_down(self, store_down: StoreDown) -> Self {
        Self { store_down, ..self }
    }

    /// The shape of our own errors. Default: RFC 9457 problem documents. Stripe's shape does not say whether to
    /// retry.
    #[must_use]
    pub fn with_errors(self, errors: Errors) -> Self {
        Self { errors, ..self }
    }

    /// Enforces the rules, or only counts what they would do. Default: enforce. While a route observes, duplicates run.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Where an answer has ids by which people know what was made, for the audit trail: JSON pointers, of which the first
    /// eight count, each value cut to 200 bytes. Default: none. The trail is kept for long: name no field that is secret.
    #[must_use]
    pub fn with_audit_ids(self, pointers: impl IntoIterator<Item = Pointer>) -> Self {
        Self { audit_ids: pointers.into_iter().take(IDS_MAX).collect(), ..self }
    }

    /// The headers by which a client says until when it needs its answer: a moment of RFC 3339, seconds, or what gRPC
    /// sends. Default: `X-Request-Deadline`, `Request-Timeout` and `grpc-timeout`. An operation is not begun after its
    /// deadline. A client whose clock is behind by more than it is willing to wait is always refused.
    #[must_use]
    pub fn with_deadline_from(self, headers: impl IntoIterator<Item = HeaderName>) -> Self {
        Self { deadline_from: headers.into_iter().collect(), ..self }
    }

    /// Requests and answers are messages of JSON-RPC: a replay has the `id` of the request that asks, and an event stream is
    /// kept whole, so that its first caller has it only when it has ended. Default: no. The `id` must also be no part of the
    /// fingerprint, as in [`Policy::json_rpc`].
    #[must_use]
    pub fn with_json_rpc(self, is_json_rpc: bool) -> Self {
        Self { is_json_rpc, ..self }
    }

    /// What happens to a free key that is older than the ttl: its answer may have expired, and to run it may be to run it
    /// twice. Default: run. With [`OldKeys::Refuse`] a client whose clock is behind by the ttl is always refused.
    #[must_use]
    pub fn with_old_keys(self, old_keys: OldKeys) -> Self {
        Self { old_keys, ..self }
    }

    /// Whether keys are tokens, which the server issues and signs. Default: off. Tokens need the secret of the engine,
    /// and key rules that admit them. Without a secret none is issued and all are refused; so it is for transactions and
    /// recovery points, which have none. [`Tokens::Required`] refuses the retries of keys that clients had made before.
    #[must_use]
    pub fn with_tokens(self, tokens: Tokens) -> Self {
        Self { tokens, ..self }
    }

    /// How often operations may be begun; past it a request gets 429. Default: no limits. Replays are free. Nodes count
    /// together where the store is in Redis, or has Redis in front of it; elsewhere each node counts by itself.
    #[must_use]
    pub fn with_velocity(self, rules: impl IntoIterator<Item = Velocity>) -> Self {
        Self { velocity: rules.into_iter().collect(), ..self }
    }

    /// How many keys one caller may have on this route; past it a new key gets 429 until some have expired. Default:
    /// 100,000, and no limit for webhooks and jobs; 0 is no limit. Callers without a principal cannot be told apart, and share
    /// a limit only if it is another than the default. Each process counts the operations that it began itself since it
    /// started. A route whose callers share one principal needs a high limit, or none.
    #[must_use]
    pub fn with_live_keys_max(self, keys: u32) -> Self {
        Self { live_keys_max: NonZeroU32::new(keys), ..self }
    }

    /// How many bytes of answers may be kept for one caller on this route; past it a new key gets 429 until some have
    /// expired. Default: 1 GiB, and no limit for webhooks and jobs; 0 is no limit. Counted as the live keys are.
    #[must_use]
    pub fn with_live_bytes_max(self, bytes: u64) -> Self {
        Self { live_bytes_max: NonZeroU64::new(bytes), ..self }
    }

    /// What of an answer is kept for retries. Default: all of it. With [`Keep::Status`] a retry learns that the operation was
    /// executed, and nothing else. [`Keep::Location`] is for long work, whose first answer soon says nothing new: see
    /// `OnceLayer::with_locations_fetched`. Transactions and recovery points keep all of it, whatever this says.
    #[must_use]
    pub fn with_keep(self, keep: Keep) -> Self {
        Self { keep, ..self }
    }

    /// Values of a JSON answer that are never stored, such as a key that is shown once. Default: none. The first caller gets
    /// the answer as it is; a retry gets `null` in their place, without the headers that would be untrue of that (`ETag`,
    /// `Digest`). An answer that is no JSON, has a content coding, or names a member twice, is not kept at all: a retry gets
    /// 410. Transactions and recovery points keep all of it, whatever this says.
    ///
    /// ```
    /// use onlyonce::Policy;
    ///
    /// let policy = Policy::default().with_redact(vec!["/api_key".parse()?]);
    /// assert_eq!(policy.redact().len(), 1);
    /// # Ok::<(), onlyonce::fingerprint::PointerError>(())
    /// ```
    #[must_use]
    pub fn with_redact(self, redact: Vec<Pointer>) -> Self {
        Self { redact, ..self }
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
            paths: Paths::Plain,
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
            audit_ids: Vec::new(),
            deadline_from: DEADLINE_FROM.to_vec(),
            old_keys: OldKeys::Run,
            is_json_rpc: false,
            tokens: Tokens::Off,
            velocity: Vec::new(),
            live_keys_max: NonZeroU32::new(LIVE_KEYS_MAX),
            live_bytes_max: NonZeroU64::new(LIVE_BYTES_MAX),
            keep: Keep::All,
            redact: Vec::new(),
        }
    }
}

/// The header of the IETF draft.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

pub(crate) const DEADLINE_FROM: [HeaderName; 3] = [
    HeaderName::from_static("x-request-deadline"),
    HeaderName::from_static("request-timeout"),
    HeaderName::from_static("grpc-timeout"),
];

const NOT_EXECUTED: [StatusCode; 7] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::MISDIRECTED_REQUEST,
    StatusCode::TOO_EARLY,
    StatusCode::TOO_MANY_REQUESTS,
];
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MIB: usize = 1024 * 1024;
pub(crate) const LIVE_KEYS_MAX: u32 = 100_000;
pub(crate) const LIVE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    // threat B14
    #[test]
    fn a_policy_that_was_asked_for_nonsense_is_still_valid() {
        let absent = Absent::Release;
        let policy = Policy::default()
            .with_lease(Duration::ZERO)
            .with_upstream_timeout(Duration::ZERO)
            .with_ttl(Duration::ZERO)
            .with_key_length(9, 8)
            .with_key_from([])
            .with_recovery(Recovery::Reconcile { absent, quiet: Duration::ZERO });
        assert_eq!([policy.lease(), policy.upstream_timeout(), policy.ttl()], [MILLISECOND; 3]);
        assert_eq!(policy.key_rules().length, (9, 9));
        assert_eq!(policy.key_from(), [KeySource::default()]);
        let quiet = 3 * MILLISECOND;
        assert_eq!(policy.recovery(), Recovery::Reconcile { absent, quiet });
    }

    #[test]
    fn of_an_answer_that_points_on_the_location_is_enough() {
        use crate::record::{Kept, NotKept, Response};

        let answer = |status: u16, location: Option<&'static str>| {
            let location = location.map(|to| (header::LOCATION, HeaderValue::from_static(to)));
            let other = (header::ETAG, HeaderValue::from_static("\"1\""));
            Arc::new(Response {
                status: StatusCode::from_u16(status).unwrap(),
                headers: location.into_iter().chain([other]).collect(),
                body: Kept::Bytes { body: "secret".into(), trailers: None },
            })
        };
        let policy = |keep| Policy::default().with_keep(keep);
        for (status, location) in [(200, None), (404, Some("/jobs/1")), (500, Some("/jobs/1"))] {
            let whole = answer(status, location);
            assert_eq!(policy(Keep::Location).stored(whole.clone()), whole);
        }
        for status in [201, 202, 303] {
            let whole = answer(status, Some("/jobs/1"));
            assert_eq!(policy(Keep::All).stored(whole.clone()), whole);
            let stored = policy(Keep::Location).stored(whole.clone());
            assert_eq!((stored.status, &stored.body), (whole.status, &Kept::No(NotKept::Location)));
            assert_eq!(stored.headers.keys().collect::<Vec<_>>(), [header::LOCATION]);
            let bare = policy(Keep::Status).stored(whole.clone());
            assert_eq!((bare.status, bare.headers.len()), (whole.status, 0));
            assert_eq!(bare.body, Kept::No(NotKept::Secret));
        }
    }

    #[test]
    fn a_key_has_at_least_one_character_and_at_most_255() {
        let length =
            |least, most| Policy::default().with_key_length(least, most).key_rules().length;
        assert_eq!(length(0, 0), (1, 1));
        assert_eq!(length(300, 400), (255, 255));
        assert_eq!(length(16, usize::MAX), (16, 255));
    }

    // In either order: the longest ttl decides, not the last call.
    #[test]
    fn unknown_outcomes_are_held_at_least_as_long_as_answers() {
        let (long, short) = (90 * DAY, HOUR);
        let policy = Policy::default().with_hold_max(short).with_ttl(long);
        assert_eq!(policy.hold_max(), long);
        assert_eq!(policy.with_ttl(short).hold_max(), short);
    }
}
