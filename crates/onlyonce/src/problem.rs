//! The answers that are our own, each with its status, as RFC 9457 problem documents.
//!
//! A problem becomes a stored response here, because an outcome that stays unknown is completed with one. The HTTP
//! layer sends the same documents to its callers.

mod stripe;

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::code::{Code, DESCRIBED_BY, Retry, WELL_KNOWN};
use crate::key::{KeyError, KeySource};
use crate::policy::{Errors, Mismatch, Policy, Recovery, Tokens};
use crate::record::{Kept, Response};

/// An answer that is ours, not the inner service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    code: Code,
    status: StatusCode,
    detail: String,
    retry: Retry,
    retry_after_s: Option<u32>,
    original_status: Option<u16>,
    /// The key, for a shape that repeats it.
    key: String,
    errors: Errors,
}

impl Problem {
    fn new(status: StatusCode, code: Code, detail: impl Into<String>) -> Self {
        debug_assert!(code.statuses().contains(&status.as_u16()), "{code} came with {status}");
        Self {
            code,
            status,
            detail: detail.into(),
            retry: code.retry(),
            retry_after_s: None,
            original_status: None,
            key: String::new(),
            errors: Errors::Problem,
        }
    }

    fn after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    pub(crate) fn key_missing(policy: &Policy) -> Self {
        let create = match policy.tokens() {
            Tokens::Required => "Get one token for each operation from POST /idempotency-tokens",
            Tokens::Off | Tokens::Optional => "Create one key for each operation",
        };
        let detail = format!(
            "This operation needs an idempotency key in {}. {create} and send the \
             same key with every retry. This request was not executed.",
            places(policy.key_from())
        );
        Self::new(StatusCode::BAD_REQUEST, Code::KeyMissing, detail)
    }

    /// For a look-up, which has no body to find a key in.
    pub(crate) fn look_up_key_missing() -> Self {
        let detail = "To look up an operation, send its key in the header Idempotency-Key.";
        Self::new(StatusCode::BAD_REQUEST, Code::KeyMissing, detail)
    }

    pub(crate) fn key_invalid(error: &KeyError, policy: &Policy) -> Self {
        let detail = format!(
            "The idempotency key in {} cannot be used: {error}. This request was not executed.",
            places(policy.key_from())
        );
        Self::new(StatusCode::BAD_REQUEST, Code::KeyInvalid, detail)
    }

    /// For a batch of messages, some of which have keys of their own.
    pub(crate) fn keyed_batch() -> Self {
        let detail = "The messages of a batch have one answer, so that each cannot be guarded by a key of its own. Send a \
                      message that has a key in a request of its own. This request was not executed.";
        let retry = Retry::Never;
        Self { retry, ..Self::new(StatusCode::BAD_REQUEST, Code::KeyInvalid, detail) }
    }

    /// The key is not a token of this caller for this operation, whatever is wrong with it: the answer must not tell a
    /// forged token from one that somebody else may use.
    pub(crate) fn token_invalid(policy: &Policy) -> Self {
        let detail = format!(
            "The idempotency key in {} is not a token that was issued to you for this operation and can still be used. This \
             request was not executed. If you have sent this token before, check with the service what was done; if not, \
             get another token.",
            places(policy.key_from())
        );
        // Not "new-key": the operation may have been executed, and its answer expired like its token.
        let retry = Retry::Never;
        Self { retry, ..Self::new(StatusCode::BAD_REQUEST, Code::KeyInvalid, detail) }
    }

    /// For a token that was asked for in an unclear context.
    pub(crate) fn token_context_unclear() -> Self {
        let detail = "The header Idempotency-Context is empty, or was sent more than once. Send one value that is the same \
                      for each attempt at one operation, or leave it out. No token was issued.";
        Self::new(StatusCode::BAD_REQUEST, Code::KeyInvalid, detail)
    }

    /// For a route that takes no tokens.
    pub(crate) fn no_tokens() -> Self {
        let detail = "No tokens are issued for this method and path. Create a key yourself, one for each operation.";
        Self::new(StatusCode::NOT_FOUND, Code::NoTokens, detail)
    }

    pub(crate) fn principal_unclear(why: &str) -> Self {
        let detail = format!("{why} {NOT_EXECUTED}");
        Self::new(StatusCode::BAD_REQUEST, Code::PrincipalUnclear, detail)
    }

    pub(crate) fn principal_invalid(why: &str) -> Self {
        let detail = format!("{why} {NOT_EXECUTED}");
        Self::new(StatusCode::UNAUTHORIZED, Code::PrincipalInvalid, detail)
    }

    /// Whether the credentials are genuine is not known. 503, because nothing was executed.
    pub(crate) fn principal_unverified(why: &str) -> Self {
        let detail =
            format!("{why} {NOT_EXECUTED} Retry with the same key after the time in Retry-After.");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::AuthorizationUnknown, detail)
            .after(RETRY_AFTER_S)
    }

    pub(crate) fn anonymous() -> Self {
        let detail = "A request with an idempotency key must carry the credentials of its caller. This request was \
                      not executed; send it again with your credentials and the same key.";
        Self::new(StatusCode::UNAUTHORIZED, Code::PrincipalMissing, detail)
    }

    /// Whether the caller may still be told of its operation is not known. 502, because a 503 with `Retry-After` says that
    /// nothing was executed.
    pub(crate) fn authorization_unknown() -> Self {
        let detail = "The service was asked whether your credentials still hold, and did not say so. This request was not \
                      executed; an earlier one with this key may have been. Retry with the same key after the time in \
                      Retry-After.";
        Self::new(StatusCode::BAD_GATEWAY, Code::AuthorizationUnknown, detail).after(RETRY_AFTER_S)
    }

    /// A delivery that is not known to be the sender's.
    pub(crate) fn webhook_unverified(why: &str) -> Self {
        let detail = format!(
            "The signature of this webhook does not hold: {why}. {NOT_EXECUTED} It claimed no key: a delivery with a \
             valid signature is taken as if this one had never come."
        );
        Self::new(StatusCode::UNAUTHORIZED, Code::WebhookSignatureInvalid, detail)
    }

    pub(crate) fn request_too_large(policy: &Policy) -> Self {
        let detail = format!(
            "The request body is larger than the {} bytes that this route accepts. This request was not executed.",
            policy.request_bytes_max()
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Code::RequestTooLarge, detail)
    }

    pub(crate) fn request_incomplete() -> Self {
        let detail = "The request body ended early. This request was not executed; send it again, whole, with the \
                      same key.";
        Self::new(StatusCode::BAD_REQUEST, Code::RequestIncomplete, detail)
    }

    pub(crate) fn request_too_slow() -> Self {
        let detail = "The request body arrived too slowly. This request was not executed; send it again with the \
                      same key.";
        Self::new(StatusCode::REQUEST_TIMEOUT, Code::RequestIncomplete, detail)
    }

    pub(crate) fn method_unclear() -> Self {
        let detail = "The request has an idempotency key, and its method is not in upper case, or is overridden \
                      by a header or a parameter. Send the method itself, in upper case. This request was not executed.";
        Self::new(StatusCode::BAD_REQUEST, Code::RequestAmbiguous, detail)
    }

    pub(crate) fn overloaded() -> Self {
        let detail = "This server is at its limit. This request was not executed; retry with the same key after \
                      the time in Retry-After.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Overloaded, detail).after(RETRY_AFTER_S)
    }

    pub(crate) fn key_reused(mismatch: Mismatch) -> Self {
        let status = match mismatch {
            Mismatch::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            Mismatch::Conflict => StatusCode::CONFLICT,
        };
        let detail = "This key was already used for a different request, and this request was not executed. A \
                      retry must repeat the first request exactly; a different operation needs a new key.";
        Self::new(status, Code::KeyReused, detail)
    }

    /// The key was used for the same operation under another spelling of its path. A new key could execute it twice.
    pub(crate) fn key_respelled(mismatch: Mismatch) -> Self {
        let detail = "This key was already used for another spelling of this path (letter case, a final slash, an \
                      extension, parameters), which the service may take for the same. This request was not executed. Send \
                      the path as the first request had it, with the same key.";
        Self { detail: detail.into(), retry: Retry::Never, ..Self::key_reused(mismatch) }
    }

    pub(crate) fn in_progress() -> Self {
        let detail = "The first request with this key is still being processed. Retry with the same key after \
                      the time in Retry-After to get its answer.";
        Self::new(StatusCode::CONFLICT, Code::InProgress, detail).after(RETRY_AFTER_S)
    }

    /// For a caller who asks about an operation that is not recorded.
    pub(crate) fn not_found() -> Self {
        let detail = "No operation of yours is recorded under this key: it never arrived, it was not executed, \
                      or its record has expired. This does not prove that it was not executed.";
        Self::new(StatusCode::NOT_FOUND, Code::NotFound, detail)
    }

    /// For a caller who asks about an operation that is told apart by its body.
    pub(crate) fn look_up_needs_body() -> Self {
        let detail = "Operations of this route are told apart by a part of their body, which a look-up does not have. To \
                      learn what became of an operation, send it again with the same key.";
        Self::new(StatusCode::NOT_FOUND, Code::NotFound, detail)
    }

    /// For a retry of an operation whose outcome is unknown.
    pub(crate) fn held(recovery: Recovery) -> Self {
        let (remedy, retry_after_s) = match recovery {
            Recovery::Reconcile { .. } => (ASKED, RECOVERING_RETRY_AFTER_S),
            Recovery::Release => (QUIET, RECOVERING_RETRY_AFTER_S),
            Recovery::Hold | Recovery::Redrive { .. } | Recovery::Fail => {
                (OPERATOR, HELD_RETRY_AFTER_S)
            }
        };
        let detail = format!(
            "The outcome of this operation is unknown: it was sent to the service, and the service did not say \
             whether it was executed. {remedy} Do not use a new key: that could execute the operation twice."
        );
        Self::new(StatusCode::CONFLICT, Code::OutcomeUnknown, detail).after(retry_after_s)
    }

    /// The operation has a record, and what became of it cannot be read.
    pub(crate) fn unreadable() -> Self {
        Self::new(StatusCode::CONFLICT, Code::OutcomeUnknown, UNREADABLE).after(HELD_RETRY_AFTER_S)
    }

    /// For the first caller.
    fn outcome_unknown(status: StatusCode, recovery: Recovery) -> Self {
        let next = match recovery {
            Recovery::Hold | Recovery::Fail => FIRST_HELD,
            Recovery::Redrive { .. } | Recovery::Release => FIRST_SENT_AGAIN,
            Recovery::Reconcile { .. } => FIRST_ASKED,
        };
        let detail = format!(
            "The request was sent to the service, and no complete answer came back, so it may have been executed. \
             {next} Do not use a new key: that could execute the operation twice."
        );
        Self::new(status, Code::OutcomeUnknown, detail)
    }

    /// For a first caller whose deadline has passed while the work goes on, whose end a retry is told.
    pub(crate) fn overdue() -> Self {
        Self::outcome_unknown(StatusCode::GATEWAY_TIMEOUT, Recovery::Hold)
    }

    /// For a first caller whose answer the store did not take in time.
    pub(crate) fn unsettled() -> Self {
        Self::outcome_unknown(StatusCode::BAD_GATEWAY, Recovery::Hold)
    }

    pub(crate) fn store_unavailable() -> Self {
        let detail = "The record of this key cannot be read or written right now, so this request was not \
                      executed. Retry with the same key after the time in Retry-After.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::StoreUnavailable, detail)
            .after(RETRY_AFTER_S)
    }

    /// The caller's database is not set up for us: `why` is a whole sentence, without names of the database's own.
    #[cfg(feature = "sqlx")]
    pub(crate) fn not_set_up(why: &str) -> Self {
        let detail = format!(
            "{why} So this request was not executed. Retry with the same key once its operator has set the service up; \
             its log says more."
        );
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::StoreUnavailable, detail)
            .after(SET_UP_RETRY_AFTER_S)
    }

    /// The operation was committed, and its answer is missing.
    #[cfg(feature = "sqlx")]
    pub(crate) fn without_answer() -> Self {
        Self::held(Recovery::Hold)
    }

    pub(crate) fn response_unavailable(original: StatusCode) -> Self {
        let detail = "The operation was executed, but its response was not kept for replay. Do not send it \
                      again; read what it created from the service.";
        let problem = Self::new(StatusCode::GONE, Code::ResponseUnavailable, detail);
        Self { original_status: Some(original.as_u16()), ..problem }
    }

    /// The transaction of the operation was rolled back; `why` is a whole sentence.
    #[cfg(feature = "sqlx")]
    pub(crate) fn rolled_back(status: StatusCode, why: &str) -> Self {
        let detail = format!(
            "{why} Everything that the request did was undone, and nothing is kept of it. Retry with the same key."
        );
        Self::new(status, Code::RolledBack, detail)
    }

    /// The operation met other transactions, at every attempt.
    #[cfg(feature = "sqlx")]
    pub(crate) fn conflict() -> Self {
        let why = "The request met other requests that change the same data.";
        Self::rolled_back(StatusCode::CONFLICT, why).after(RETRY_AFTER_S)
    }

    /// The handler has ended its transaction by itself, so that nobody knows what it has written.
    #[cfg(feature = "sqlx")]
    pub(crate) fn ended_by_work() -> Self {
        let detail = "The service ended its transaction by itself, so it is not known what it has done. Check with the \
                      service before you send the request again.";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { retry: Retry::Never, ..Self::new(status, Code::OutcomeUnknown, detail) }
    }

    /// The handler has worked outside of its transaction, and its answer is not known or not kept.
    #[cfg(feature = "sqlx")]
    pub(crate) fn may_have_run(status: StatusCode) -> Self {
        closed(Self::outcome_unknown(status, Recovery::Fail))
    }

    /// The effect is there, and the record of the key is not, or cannot be read.
    #[cfg(any(feature = "sqlite", feature = "sqlx"))]
    pub(crate) fn already_done() -> Self {
        let detail = "The operation was executed before, and its response is not kept any more, or cannot be read. Do not \
                      send it again; read what it created from the service.";
        Self::new(StatusCode::CONFLICT, Code::ResponseUnavailable, detail)
    }

    /// The client's deadline had passed before anything was sent.
    pub(crate) fn deadline_exceeded() -> Self {
        let detail = "The deadline of this request had passed when it was to be executed, so it was not executed. To try \
                      again, send it with a later deadline.";
        Self::new(StatusCode::GATEWAY_TIMEOUT, Code::DeadlineExceeded, detail)
    }

    /// The key is free, and so old that its answer may have expired.
    pub(crate) fn key_expired() -> Self {
        let detail = "This key is older than answers are kept here, so that it may have been executed before, and its answer \
                      may have expired. This request was not executed. Check with the service what was done before you \
                      send it with a new key.";
        Self::new(StatusCode::PRECONDITION_FAILED, Code::KeyExpired, detail)
    }

    /// A limit of the route is used up.
    pub(crate) fn velocity_exceeded(wait: Duration) -> Self {
        let detail = "Too many operations like this one were begun in a short time. This request was not executed; send it \
                      again later, with the same key.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, Code::VelocityExceeded, detail)
            .after(seconds(wait))
    }

    /// The caller has as many keys as the route keeps.
    pub(crate) fn too_many_keys(wait: Duration) -> Self {
        let detail = "You have used as many keys here as are kept for one caller. This request was not executed; send it \
                      again, with the same key, when some of your keys have expired. Use one key for each operation, and \
                      the same key for its retries.";
        Self::new(StatusCode::TOO_MANY_REQUESTS, Code::VelocityExceeded, detail)
            .after(seconds(wait))
    }

    /// The service got nothing: the request could not be delivered.
    pub(crate) fn upstream_unreachable() -> Self {
        let detail = "The request could not be delivered to the service, so it was not executed. It is safe to send it \
                      again; if it has a key, with that key.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::UpstreamUnreachable, detail)
            .after(RETRY_AFTER_S)
    }

    /// The service closed the connection on a request without a key.
    pub(crate) fn upstream_failed() -> Self {
        let detail = format!("The service closed the connection before it answered. {NO_KEY}");
        Self::new(StatusCode::BAD_GATEWAY, Code::UpstreamFailed, detail)
    }

    /// The service did not answer a request without a key in time.
    pub(crate) fn upstream_timeout() -> Self {
        let detail = format!("The service did not answer in time. {NO_KEY}");
        Self::new(StatusCode::GATEWAY_TIMEOUT, Code::UpstreamTimeout, detail)
    }

    /// The server holds too many answers that their clients do not read. Without `Retry-After`, which says of a 503
    /// that nothing was executed.
    pub(crate) fn answer_not_sent() -> Self {
        let detail = "This server holds too many answers that their clients have not read, so this one was not \
                      sent. Retry with the same key: what was executed is not executed again, and its stored answer is \
                      sent.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::ResponseNotSent, detail)
    }

    /// What the operation points to could not be fetched for a retry. Without `Retry-After`, as above.
    pub(crate) fn answer_not_fetched() -> Self {
        let detail = "The operation was executed before. Its answer is fetched from the service for each retry, and the \
                      service did not give it. Retry with the same key: nothing is executed again.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::ResponseNotSent, detail)
    }

    /// Two servers on the way could read the request differently; `why` is a whole sentence.
    pub(crate) fn request_ambiguous(why: &str) -> Self {
        let detail = format!("{why} {NOT_EXECUTED}");
        Self::new(StatusCode::BAD_REQUEST, Code::RequestAmbiguous, detail)
    }

    /// CONNECT, on a server that opens no tunnels.
    pub(crate) fn method_not_allowed() -> Self {
        let detail =
            "CONNECT asks for a tunnel, and this server opens none. This request was not executed.";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Code::MethodNotAllowed, detail)
    }

    /// A repeatable request whose two headers are not both there, each once, and well formed.
    pub(crate) fn repeatability_invalid() -> Self {
        let detail = "Repeatability-Request-ID and Repeatability-First-Sent belong together: send each once, the second as a \
                      date such as Sun, 06 Nov 1994 08:49:37 GMT. This request was not executed.";
        Self::new(StatusCode::BAD_REQUEST, Code::KeyInvalid, detail)
    }

    /// A repeatable request with a method that is not guarded.
    pub(crate) fn repeatability_unsupported() -> Self {
        let detail = "Requests with this method are not repeatable here, and would be executed each time. This request was \
                      not executed. Send it without the Repeatability headers to have it executed once for each time you send it.";
        Self::new(StatusCode::NOT_IMPLEMENTED, Code::RepeatabilityUnsupported, detail)
    }

    /// An unsafe request without a key in early data of TLS, which whoever copies it can send again.
    pub(crate) fn too_early() -> Self {
        let detail = "This request came in TLS early data (Early-Data: 1), which can be copied and sent again by a stranger, \
                      and it has no idempotency key by which the second one would be noticed. It was not executed; send it \
                      again after the TLS handshake, or with a key.";
        Self::new(StatusCode::TOO_EARLY, Code::TooEarly, detail)
    }

    /// Whether the request was not taken, and no request before it: nothing runs or has run for it.
    pub(crate) fn is_refusal(&self) -> bool {
        match self.code {
            Code::InProgress
            | Code::OutcomeUnknown
            | Code::OperationFailed
            | Code::ResponseUnavailable
            | Code::ResponseNotSent
            | Code::NotFound
            | Code::AuthorizationUnknown
            | Code::UpstreamFailed
            | Code::UpstreamTimeout => false,
            // A time of its first sending that is too old is one that the client must change.
            Code::KeyExpired => true,
            Code::KeyMissing
            | Code::KeyInvalid
            | Code::KeyReused
            | Code::StoreUnavailable
            | Code::RolledBack
            | Code::PrincipalUnclear
            | Code::PrincipalMissing
            | Code::PrincipalInvalid
            | Code::WebhookSignatureInvalid
            | Code::RequestTooLarge
            | Code::RequestIncomplete
            | Code::RequestAmbiguous
            | Code::MethodNotAllowed
            | Code::Overloaded
            | Code::DeadlineExceeded
            | Code::VelocityExceeded
            | Code::NoTokens
            | Code::RepeatabilityUnsupported
            | Code::TooEarly
            | Code::UpstreamUnreachable => true,
        }
    }

    /// The same problem, naming the key in the shapes that repeat it.
    pub(crate) fn about_key(self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self }
    }

    fn body(&self) -> Bytes {
        match self.errors {
            Errors::Problem => self.document(),
            Errors::Stripe => stripe::document(self),
        }
        .to_string()
        .into()
    }

    fn document(&self) -> Value {
        let mut document = json!({
            "type": format!("{WELL_KNOWN}#{}", self.code),
            "title": self.code.title(),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code.text(),
            "retry": self.retry.text(),
        });
        if let Some(original) = self.original_status {
            document["original_status"] = original.into();
        }
        document
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let media_type = match self.errors {
            Errors::Problem => "application/problem+json",
            Errors::Stripe => "application/json",
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::LINK, HeaderValue::from_static(DESCRIBED_BY));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        headers
    }

    /// The problem as the route of `policy` stores it.
    pub(crate) fn record(self, policy: &Policy) -> Response {
        let problem = self.shaped(policy.errors());
        let body = Kept::Bytes { body: problem.body(), trailers: None };
        Response { status: problem.status, headers: problem.headers(), body }
    }

    fn shaped(self, errors: Errors) -> Self {
        let status = match errors {
            Errors::Problem => self.status,
            Errors::Stripe => stripe::status(&self),
        };
        Self { status, errors, ..self }
    }
}

/// The request was sent, and no whole answer came in time: the answer of the first caller, which `recovery = "fail"`
/// also stores.
pub(crate) fn timed_out(policy: &Policy) -> Response {
    unknown(StatusCode::GATEWAY_TIMEOUT, policy)
}

/// The request was sent, and no whole answer came at all: the same.
pub(crate) fn failed(policy: &Policy) -> Response {
    unknown(StatusCode::BAD_GATEWAY, policy)
}

fn unknown(status: StatusCode, policy: &Policy) -> Response {
    let problem = Problem::outcome_unknown(status, policy.recovery());
    match policy.recovery() {
        Recovery::Fail => closed(problem).record(policy),
        Recovery::Hold
        | Recovery::Redrive { .. }
        | Recovery::Release
        | Recovery::Reconcile { .. } => problem.record(policy),
    }
}

/// The response that completes an operation which was unknown for longer than `hold_max`.
pub(crate) fn given_up() -> Response {
    closed(Problem::outcome_unknown(StatusCode::BAD_GATEWAY, Recovery::Fail))
        .record(&Policy::default())
}

/// The response that completes an operation of which an operator says that it failed.
pub(crate) fn settled_as_failed() -> Response {
    let detail = "An operator checked this operation with the service: it failed, and it will not be executed. To try \
                  again, send it with a new key.";
    Problem::new(StatusCode::BAD_GATEWAY, Code::OperationFailed, detail).record(&Policy::default())
}

/// The same problem for an outcome that is final.
fn closed(problem: Problem) -> Problem {
    let detail = "The request was sent to the service, and no complete answer came back, so it may have been \
                  executed; this outcome is final. Check with the service what was done before you send it \
                  again.";
    Problem { retry: Retry::Never, detail: detail.to_owned(), ..problem }
}

/// Where the key is expected, in words.
fn places(sources: &[KeySource]) -> String {
    let places = sources.iter().filter_map(|source| match source {
        KeySource::Header(name) => Some(format!("the header {}", spelled(name))),
        KeySource::Json(pointer) => Some(format!("the member {pointer} of the JSON body")),
        KeySource::Query(name) => Some(format!("the query parameter {name}")),
        KeySource::Form(name) => Some(format!("the form field {name}")),
        KeySource::CloudEvent => Some("the source and the id of a CloudEvent".to_owned()),
        KeySource::Body { .. } => Some("the body".to_owned()),
        KeySource::Fingerprint => None,
    });
    let places: Vec<_> = places.collect();
    places.join(" or ")
}

/// A field's name as people write it: `Idempotency-Key`.
fn spelled(name: &HeaderName) -> String {
    let words = name.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.collect::<Vec<_>>().join("-")
}

/// Whole seconds, at least as long.
fn seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).max(1)
}

const RETRY_AFTER_S: u32 = 1;
/// How soon somebody may have set a database up.
#[cfg(feature = "sqlx")]
const SET_UP_RETRY_AFTER_S: u32 = 60;
/// `Retry-After` for an unknown outcome that only a person resolves.
const HELD_RETRY_AFTER_S: u32 = 60;
/// `Retry-After` for an unknown outcome that the next retries may resolve.
const RECOVERING_RETRY_AFTER_S: u32 = 5;
const UNREADABLE: &str = "The record of this key is damaged, so that the outcome of its operation is unknown: it may have \
                          been executed. It is not executed again automatically; an operator must restore the record. Do \
                          not use a new key: that could execute the operation twice.";
const OPERATOR: &str = "It is not executed again automatically; an operator must resolve it. Until then every \
                        retry with this key gets this answer.";
const ASKED: &str = "The service is asked what became of it; retry with the same key after the time in \
                     Retry-After.";
const QUIET: &str =
    "Once the first attempt can no longer arrive, a retry with the same key executes it.";
const FIRST_HELD: &str = "It is not sent again automatically. A retry with the same key is told the outcome, once it \
                          is known.";
const FIRST_SENT_AGAIN: &str = "A retry with the same key sends it again.";
const FIRST_ASKED: &str = "A retry with the same key asks the service what became of it.";
/// Said of this request alone: an earlier request with the same key may have been executed.
const NOT_EXECUTED: &str = "This request was not executed.";
const NO_KEY: &str = "The request had no idempotency key, and it may have been executed: send it again only if \
                      executing it twice does no harm.";
