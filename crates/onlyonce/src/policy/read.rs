//! The rules of a policy as they hold.

use std::borrow::Cow;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName};
use http::{Method, StatusCode};

use super::redact;
use super::{
    Errors, InFlight, Keep, Keeps, KeyNeed, Mismatch, Mode, OldKeys, Paths, Policy, Recovery,
    Statuses, StoreDown, Tokens, is_relayed,
};
use crate::fingerprint::{FingerprintRules, Pointer};
use crate::key::{KeyRules, KeySource};
use crate::planted::{Planted, planted};
use crate::record::{NotKept, Response};
use crate::scope::ScopePart;
use crate::velocity::Velocity;

impl Policy {
    /// The name of the route in records and counts.
    pub fn route(&self) -> &Arc<str> {
        &self.route
    }

    /// The methods that are guarded.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// Whether a request must have a key.
    pub fn key(&self) -> KeyNeed {
        match self.tokens {
            Tokens::Required => KeyNeed::Required,
            Tokens::Off | Tokens::Optional => self.key,
        }
    }

    /// Where the key is found; at least one place.
    pub fn key_from(&self) -> &[KeySource] {
        &self.key_from
    }

    /// What a key must look like.
    pub fn key_rules(&self) -> &KeyRules {
        &self.key_rules
    }

    /// What besides the key tells two operations apart.
    pub fn scope(&self) -> &[ScopePart] {
        &self.scope
    }

    /// Whether the service takes spellings of a path for one another.
    pub fn paths(&self) -> Paths {
        self.paths
    }

    /// What besides the key ids are made from.
    pub(crate) fn id_scope(&self) -> Cow<'_, [ScopePart]> {
        let as_sent = |part: &ScopePart| match part {
            ScopePart::Path => ScopePart::LiteralPath,
            part => part.clone(),
        };
        match self.paths {
            Paths::Plain => Cow::Borrowed(&self.scope),
            Paths::Literal => self.scope.iter().map(as_sent).collect(),
        }
    }

    /// What makes two requests with one key the same.
    pub fn fingerprint(&self) -> &FingerprintRules {
        &self.fingerprint
    }

    /// How long an answer is kept, from completion; never zero.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// What a duplicate gets while the first request still runs.
    pub fn in_flight(&self) -> InFlight {
        self.in_flight
    }

    /// The status for a key that was used for another request.
    pub fn mismatch(&self) -> Mismatch {
        self.mismatch
    }

    /// Answers that say "not executed" and free the key.
    pub fn not_executed(&self) -> &[Statuses] {
        &self.not_executed
    }

    /// What is done about an unknown outcome. A quiet time is at least twice the upstream timeout and a lease: before
    /// that, "never heard of it" proves nothing, because the request may still arrive.
    pub fn recovery(&self) -> Recovery {
        match self.recovery {
            Recovery::Reconcile { absent, quiet } => {
                let quiet_min = self.upstream_timeout.saturating_mul(2).saturating_add(self.lease);
                Recovery::Reconcile { absent, quiet: quiet.max(quiet_min) }
            }
            other => other,
        }
    }

    /// How long an owner may be silent; never zero.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// After how long an unknown outcome is closed for good; never below the ttl.
    pub fn hold_max(&self) -> Duration {
        self.hold_max.max(self.ttl)
    }

    /// How long the inner service may take until its whole answer is there; never zero.
    pub fn upstream_timeout(&self) -> Duration {
        self.upstream_timeout
    }

    /// The largest request that is taken.
    pub fn request_bytes_max(&self) -> usize {
        self.request_bytes_max
    }

    /// The largest answer that is kept for replay.
    pub fn response_bytes_max(&self) -> usize {
        self.response_bytes_max
    }

    /// What happens to requests while the store is down.
    pub fn store_down(&self) -> StoreDown {
        self.store_down
    }

    /// The headers by which a client says until when it needs its answer.
    pub fn deadline_from(&self) -> &[HeaderName] {
        &self.deadline_from
    }

    /// What happens to a free key that is older than the ttl.
    pub fn old_keys(&self) -> OldKeys {
        self.old_keys
    }

    /// Whether requests and answers are messages of JSON-RPC.
    pub fn is_json_rpc(&self) -> bool {
        self.is_json_rpc
    }

    /// Whether keys are tokens that the server issues.
    pub fn tokens(&self) -> Tokens {
        self.tokens
    }

    /// How often operations may be begun.
    pub fn velocity(&self) -> &[Velocity] {
        &self.velocity
    }

    /// How many keys one caller may have; `None` is no limit.
    pub fn live_keys_max(&self) -> Option<NonZeroU32> {
        self.live_keys_max
    }

    /// How many bytes of answers may be kept for one caller; `None` is no limit.
    pub fn live_bytes_max(&self) -> Option<NonZeroU64> {
        self.live_bytes_max
    }

    /// What of an answer is kept for retries.
    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// The shape of our own errors.
    pub fn errors(&self) -> Errors {
        self.errors
    }

    /// Whether the rules are enforced, or only watched.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Where an answer has ids for the audit trail.
    pub fn audit_ids(&self) -> &[Pointer] {
        &self.audit_ids
    }

    /// What is stored of an answer that is the final outcome: see [`Keep`].
    pub fn stored(&self, answer: Arc<Response>) -> Arc<Response> {
        let points_on = answer.status.is_success() || answer.status.is_redirection();
        let location = answer.headers.get(header::LOCATION).filter(|_| points_on);
        match (self.keep, location) {
            (Keep::Status, _) => Arc::new(answer.without_body(NotKept::Secret)),
            (Keep::Location, Some(location)) => {
                let headers = HeaderMap::from_iter([(header::LOCATION, location.clone())]);
                Arc::new(Response { headers, ..answer.without_body(NotKept::Location) })
            }
            (Keep::All | Keep::Location, _) => self.redacted(answer),
        }
    }

    /// Where an answer has values that are never stored.
    pub fn redact(&self) -> &[Pointer] {
        &self.redact
    }

    /// The answer without them.
    pub(crate) fn redacted(&self, answer: Arc<Response>) -> Arc<Response> {
        redact::redacted(answer, &self.redact)
    }

    /// What an answer of the inner service means for the record.
    ///
    /// - Stored: 2xx, 3xx, 4xx, 500 and other 5xx, except those below.
    /// - Released: the statuses of [`not_executed`](Self::not_executed), and 409 or 503 with `Retry-After`.
    /// - Unknown: 502, 504, 503 without `Retry-After`, and 503 with the `Via` of another proxy, because a proxy behind us
    ///   may have sent the request on: Varnish answers 503 with `Retry-After` when its backend dies after it executed
    ///   the request.
    pub fn keeps(&self, status: StatusCode, headers: &HeaderMap) -> Keeps {
        let retry_after = headers.contains_key(header::RETRY_AFTER);
        match status {
            _ if self.not_executed.iter().any(|statuses| statuses.has(status)) => Keeps::Release,
            _ if planted(Planted::ServerErrorReleases) && status.is_server_error() => {
                Keeps::Release
            }
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
