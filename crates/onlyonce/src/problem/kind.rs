//! What is always the same about a problem: its code, its title, and a sentence for people who look it up.

/// One kind of problem.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(super) code: &'static str,
    pub(super) title: &'static str,
    /// What the document under [`WELL_KNOWN`](super::WELL_KNOWN) says of it.
    sentence: &'static str,
    pub(super) retry: Retry,
}

/// Whether sending again is safe, and with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    SameKey,
    NewKey,
    Never,
}

impl Kind {
    const fn new(
        code: &'static str,
        title: &'static str,
        sentence: &'static str,
        retry: Retry,
    ) -> Self {
        Self { code, title, sentence, retry }
    }
}

/// A sentence for each code.
pub(crate) fn sentences() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.iter().map(|kind| (kind.code, kind.sentence))
}

pub(super) const KEY_MISSING: Kind = Kind::new(
    "idempotency_key_missing",
    "Idempotency-Key is missing",
    "This operation needs an idempotency key. Create one key for each operation.",
    Retry::NewKey,
);
pub(super) const KEY_INVALID: Kind = Kind::new(
    "idempotency_key_invalid",
    "Idempotency-Key is not valid",
    "The idempotency key is malformed, empty, sent twice, has the wrong length or format, is inside a batch of messages, or is not a token of the caller where it must be one.",
    Retry::NewKey,
);
pub(super) const KEY_REUSED: Kind = Kind::new(
    "idempotency_key_reused",
    "Idempotency-Key is already used",
    "The key was already used for a different request. Send this request with a new key.",
    Retry::NewKey,
);
pub(super) const IN_PROGRESS: Kind = Kind::new(
    "idempotency_in_progress",
    "A request is outstanding for this Idempotency-Key",
    "The first request with this key is still being processed. Retry with the same key.",
    Retry::SameKey,
);
pub(super) const OUTCOME_UNKNOWN: Kind = Kind::new(
    "idempotency_outcome_unknown",
    "Outcome unknown",
    "The request was sent to the service and no complete answer came back, so it may have been executed.",
    Retry::SameKey,
);
pub(super) const OPERATION_FAILED: Kind = Kind::new(
    "idempotency_operation_failed",
    "Operation failed",
    "An operator checked an operation whose outcome was unknown, and recorded that it failed.",
    Retry::NewKey,
);
pub(super) const RESPONSE_UNAVAILABLE: Kind = Kind::new(
    "idempotency_response_unavailable",
    "Response was not kept",
    "The operation was executed, but its response was not kept for replay.",
    Retry::Never,
);
pub(super) const RESPONSE_NOT_SENT: Kind = Kind::new(
    "idempotency_response_not_sent",
    "Response was not sent",
    "The operation may have been executed, and its response could not be sent. Retry with the same key to get it.",
    Retry::SameKey,
);
pub(super) const STORE_UNAVAILABLE: Kind = Kind::new(
    "idempotency_store_unavailable",
    "Idempotency store unavailable",
    "The record of the key cannot be read or written right now. The request was not executed.",
    Retry::SameKey,
);
pub(super) const ROLLED_BACK: Kind = Kind::new(
    "idempotency_rolled_back",
    "Rolled back",
    "The operation failed, and everything that it did was undone. Retry with the same key.",
    Retry::SameKey,
);
pub(super) const NOT_FOUND: Kind = Kind::new(
    "idempotency_operation_not_found",
    "Operation not found",
    "No operation of the caller is recorded under this key.",
    Retry::SameKey,
);
pub(super) const PRINCIPAL_UNCLEAR: Kind = Kind::new(
    "principal_unclear",
    "Cannot identify the caller",
    "The credentials of the request do not identify one caller, so the key cannot be assigned to anyone.",
    Retry::Never,
);
pub(super) const PRINCIPAL_INVALID: Kind = Kind::new(
    "principal_invalid",
    "Credentials are not valid",
    "The credentials of the caller could not be verified. The request was not executed.",
    Retry::SameKey,
);
pub(super) const PRINCIPAL_MISSING: Kind = Kind::new(
    "principal_missing",
    "Credentials are required",
    "A request with an idempotency key must carry the credentials of its caller.",
    Retry::SameKey,
);
pub(super) const AUTHORIZATION_UNKNOWN: Kind = Kind::new(
    "authorization_unknown",
    "Credentials could not be checked",
    "The service did not say whether the credentials of the caller still hold, so the caller was told nothing of its operation. Retry with the same key.",
    Retry::SameKey,
);
pub(super) const WEBHOOK_SIGNATURE_INVALID: Kind = Kind::new(
    "webhook_signature_invalid",
    "Webhook signature is not valid",
    "The signature of the webhook is missing, wrong, or too old or too new. The request was not executed, and claimed no key.",
    Retry::Never,
);
pub(super) const REQUEST_TOO_LARGE: Kind = Kind::new(
    "request_too_large",
    "Request body too large",
    "The body is larger than the route accepts. The request was not executed.",
    Retry::Never,
);
pub(super) const REQUEST_INCOMPLETE: Kind = Kind::new(
    "request_incomplete",
    "Request body incomplete",
    "The body ended early or arrived too slowly. The request was not executed.",
    Retry::SameKey,
);
pub(super) const REQUEST_AMBIGUOUS: Kind = Kind::new(
    "request_ambiguous",
    "Ambiguous request",
    "Two servers could read this request differently. The request was not executed.",
    Retry::Never,
);
pub(super) const METHOD_NOT_ALLOWED: Kind = Kind::new(
    "method_not_allowed",
    "Method not allowed",
    "The gateway does not open tunnels. The request was not executed.",
    Retry::Never,
);
pub(super) const OVERLOADED: Kind = Kind::new(
    "overloaded",
    "Too many requests in progress",
    "A limit of this server is reached. The request was not executed.",
    Retry::SameKey,
);
pub(super) const DEADLINE_EXCEEDED: Kind = Kind::new(
    "idempotency_deadline_exceeded",
    "Deadline exceeded",
    "The deadline that the client sent had passed. The request was not executed.",
    Retry::Never,
);
pub(super) const KEY_EXPIRED: Kind = Kind::new(
    "idempotency_key_expired",
    "Idempotency-Key is too old",
    "The key is older than answers are kept, and no operation is recorded under it. The request was not executed.",
    Retry::Never,
);
pub(super) const VELOCITY_EXCEEDED: Kind = Kind::new(
    "velocity_exceeded",
    "Too many operations",
    "The caller has begun too many operations, or has too many live keys. The request was not executed. Retry later, with the same key.",
    Retry::SameKey,
);
pub(super) const NO_TOKENS: Kind = Kind::new(
    "idempotency_tokens_not_issued",
    "No tokens for this operation",
    "This operation takes no tokens. Create a key for it yourself.",
    Retry::Never,
);
pub(super) const REPEATABILITY_UNSUPPORTED: Kind = Kind::new(
    "repeatability_unsupported",
    "Not repeatable",
    "The request asks to be repeatable, and its method is not guarded here. The request was not executed.",
    Retry::Never,
);
pub(super) const TOO_EARLY: Kind = Kind::new(
    "too_early",
    "Too early",
    "The request came in early data of TLS, which a stranger can send again, and has no key that would notice it. The request was not executed. Send it again once the handshake is complete.",
    Retry::SameKey,
);
pub(super) const UPSTREAM_UNREACHABLE: Kind = Kind::new(
    "upstream_unreachable",
    "Upstream service unreachable",
    "The request could not be delivered to the service. The request was not executed.",
    Retry::SameKey,
);
pub(super) const UPSTREAM_FAILED: Kind = Kind::new(
    "upstream_failed",
    "Upstream service failed",
    "The service did not answer a request that had no idempotency key.",
    Retry::Never,
);
pub(super) const UPSTREAM_TIMEOUT: Kind = Kind::new(
    "upstream_timeout",
    "Upstream service timed out",
    "The service did not answer a request that had no idempotency key in time.",
    Retry::Never,
);

const ALL: [&Kind; 30] = [
    &KEY_MISSING,
    &KEY_INVALID,
    &KEY_REUSED,
    &IN_PROGRESS,
    &OUTCOME_UNKNOWN,
    &OPERATION_FAILED,
    &RESPONSE_UNAVAILABLE,
    &RESPONSE_NOT_SENT,
    &STORE_UNAVAILABLE,
    &ROLLED_BACK,
    &NOT_FOUND,
    &PRINCIPAL_UNCLEAR,
    &PRINCIPAL_MISSING,
    &PRINCIPAL_INVALID,
    &AUTHORIZATION_UNKNOWN,
    &WEBHOOK_SIGNATURE_INVALID,
    &REQUEST_TOO_LARGE,
    &REQUEST_INCOMPLETE,
    &REQUEST_AMBIGUOUS,
    &METHOD_NOT_ALLOWED,
    &OVERLOADED,
    &DEADLINE_EXCEEDED,
    &KEY_EXPIRED,
    &VELOCITY_EXCEEDED,
    &NO_TOKENS,
    &REPEATABILITY_UNSUPPORTED,
    &TOO_EARLY,
    &UPSTREAM_UNREACHABLE,
    &UPSTREAM_FAILED,
    &UPSTREAM_TIMEOUT,
];
