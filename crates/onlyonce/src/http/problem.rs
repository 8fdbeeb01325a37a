//! The only place that picks a status: the answers that are our own, as RFC 9457 problem documents.

mod kind;
mod stripe;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use self::kind::{Kind, Retry};
use super::{Body, IDEMPOTENT_REPLAYED, NotSent, OwnAnswer, headers};
use crate::key::{KeyError, KeySource};
use crate::once::Refusal;
use crate::policy::{Errors, Mismatch, Policy, Recovery};
use crate::record::{self, Kept};

pub use self::kind::sentences;

/// An answer that is not the inner service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    kind: &'static Kind,
    status: StatusCode,
    detail: String,
    retry: Retry,
    retry_after_s: Option<u32>,
    original_status: Option<u16>,
    /// The key in question, for a shape that repeats it.
    key: String,
    errors: Errors,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            status,
            detail: detail.into(),
            retry: kind.retry,
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
        let detail = format!(
            "This operation needs an idempotency key in {}. Create one key for each operation and send the \
             same key with every retry. This request was not executed.",
            places(&policy.key_from)
        );
        Self::new(StatusCode::BAD_REQUEST, &kind::KEY_MISSING, detail)
    }

    /// For a look-up, which has no body to find a key in.
    pub(crate) fn look_up_key_missing() -> Self {
        let detail = "To look up an operation, send its key in the header Idempotency-Key.";
        Self::new(StatusCode::BAD_REQUEST, &kind::KEY_MISSING, detail)
    }

    pub(crate) fn key_invalid(error: &KeyError, policy: &Policy) -> Self {
        let detail = format!(
            "The idempotency key in {} cannot be used: {error}. This request was not executed.",
            places(&policy.key_from)
        );
        Self::new(StatusCode::BAD_REQUEST, &kind::KEY_INVALID, detail)
    }

    pub(crate) fn principal_unclear(why: &str) -> Self {
        let detail = format!("{why} {NOT_EXECUTED}");
        Self::new(StatusCode::BAD_REQUEST, &kind::PRINCIPAL_UNCLEAR, detail)
    }

    pub(crate) fn anonymous() -> Self {
        let detail = "A request with an idempotency key must carry the credentials of its caller. This request was \
                      not executed; send it again with your credentials and the same key.";
        Self::new(StatusCode::UNAUTHORIZED, &kind::PRINCIPAL_MISSING, detail)
    }

    pub(crate) fn request_too_large(policy: &Policy) -> Self {
        let detail = format!(
            "The request body is larger than the {} bytes that this route accepts. This request was not executed.",
            policy.request_bytes_max
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, &kind::REQUEST_TOO_LARGE, detail)
    }

    pub(crate) fn request_incomplete() -> Self {
        let detail = "The request body ended early. This request was not executed; send it again, whole, with the \
                      same key.";
        Self::new(StatusCode::BAD_REQUEST, &kind::REQUEST_INCOMPLETE, detail)
    }

    pub(crate) fn request_too_slow() -> Self {
        let detail = "The request body arrived too slowly. This request was not executed; send it again with the \
                      same key.";
        Self::new(StatusCode::REQUEST_TIMEOUT, &kind::REQUEST_INCOMPLETE, detail)
    }

    fn method_unclear() -> Self {
        let detail = "The request has an idempotency key, and its method is not in upper case, or is overridden \
                      by a header. Send the method itself, in upper case. This request was not executed.";
        Self::new(StatusCode::BAD_REQUEST, &kind::REQUEST_AMBIGUOUS, detail)
    }

    pub(crate) fn overloaded() -> Self {
        let detail = "This server is at its limit. This request was not executed; retry with the same key after \
                      the time in Retry-After.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, &kind::OVERLOADED, detail).after(RETRY_AFTER_S)
    }

    fn key_reused(mismatch: Mismatch) -> Self {
        let status = match mismatch {
            Mismatch::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            Mismatch::Conflict => StatusCode::CONFLICT,
        };
        let detail = "This key was already used for a different request, and this request was not executed. A \
                      retry must repeat the first request exactly; a different operation needs a new key.";
        Self::new(status, &kind::KEY_REUSED, detail)
    }

    fn in_progress() -> Self {
        let detail = "The first request with this key is still being processed. Retry with the same key after \
                      the time in Retry-After to get its answer.";
        Self::new(StatusCode::CONFLICT, &kind::IN_PROGRESS, detail).after(RETRY_AFTER_S)
    }

    /// For a caller who asks about an operation that is not recorded.
    pub(crate) fn not_found() -> Self {
        let detail = "No operation of yours is recorded under this key: it never arrived, it was not executed, \
                      or its record has expired. This does not prove that it was not executed.";
        Self::new(StatusCode::NOT_FOUND, &kind::NOT_FOUND, detail)
    }

    /// For a retry of an operation whose outcome is unknown.
    fn held(recovery: Recovery) -> Self {
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
        Self::new(StatusCode::CONFLICT, &kind::OUTCOME_UNKNOWN, detail).after(retry_after_s)
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
        Self::new(status, &kind::OUTCOME_UNKNOWN, detail)
    }

    pub(crate) fn store_unavailable() -> Self {
        let detail = "The record of this key cannot be read or written right now, so this request was not \
                      executed. Retry with the same key after the time in Retry-After.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, &kind::STORE_UNAVAILABLE, detail)
            .after(RETRY_AFTER_S)
    }

    fn response_unavailable(original: StatusCode) -> Self {
        let detail = "The operation was executed, but its response was not kept for replay. Do not send it \
                      again; read what it created from the service.";
        let problem = Self::new(StatusCode::GONE, &kind::RESPONSE_UNAVAILABLE, detail);
        Self { original_status: Some(original.as_u16()), ..problem }
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
            "type": format!("{WELL_KNOWN}#{}", self.kind.code),
            "title": self.kind.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.kind.code,
            "retry": match self.retry {
                Retry::SameKey => "same-key",
                Retry::NewKey => "new-key",
                Retry::Never => "never",
            },
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

    /// As a route sends it.
    pub(crate) fn response(self, policy: &Policy) -> Response<Body> {
        own(&self.record(policy))
    }

    /// As a route stores it.
    fn record(self, policy: &Policy) -> record::Response {
        let problem = self.shaped(policy.errors);
        let body = Kept::Bytes { body: problem.body(), trailers: None };
        record::Response { status: problem.status, headers: problem.headers(), body }
    }

    fn shaped(self, errors: Errors) -> Self {
        let status = match errors {
            Errors::Problem => self.status,
            Errors::Stripe => stripe::status(&self),
        };
        Self { status, errors, ..self }
    }
}

/// The problem of a refusal, or a replay, to a page of `origin` if it comes from one.
pub(crate) fn refused(
    refusal: &Refusal,
    policy: &Policy,
    key: &str,
    origin: Option<&HeaderValue>,
) -> Response<Body> {
    let problem = match refusal {
        Refusal::Replay(response) => return headers::for_origin(origin, replay(response, policy)),
        Refusal::Reused => Problem::key_reused(policy.mismatch),
        Refusal::InProgress => Problem::in_progress(),
        Refusal::Unknown { .. } => Problem::held(policy.recovery),
        Refusal::StoreDown { .. } => Problem::store_unavailable(),
        Refusal::Overloaded => Problem::overloaded(),
    };
    Problem { key: key.to_owned(), ..problem }.response(policy)
}

/// The stored answer, or word that it was not kept.
fn replay(stored: &Arc<record::Response>, policy: &Policy) -> Response<Body> {
    if let Kept::No(_) = stored.body {
        return Problem::response_unavailable(stored.status).response(policy);
    }
    let mut response = own(stored);
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Sent on, and no whole answer in time: what the first caller gets, and what `recovery = "fail"` stores.
pub(crate) fn timed_out(policy: &Policy) -> record::Response {
    unknown(StatusCode::GATEWAY_TIMEOUT, policy)
}

/// Sent on, and no whole answer at all: likewise.
pub(crate) fn failed(policy: &Policy) -> record::Response {
    unknown(StatusCode::BAD_GATEWAY, policy)
}

fn unknown(status: StatusCode, policy: &Policy) -> record::Response {
    let problem = Problem::outcome_unknown(status, policy.recovery);
    match policy.recovery {
        Recovery::Fail => closed(problem).record(policy),
        Recovery::Hold
        | Recovery::Redrive { .. }
        | Recovery::Release
        | Recovery::Reconcile { .. } => problem.record(policy),
    }
}

/// An outcome that was unknown for longer than it is held.
pub(crate) fn given_up() -> record::Response {
    closed(Problem::outcome_unknown(StatusCode::BAD_GATEWAY, Recovery::Fail))
        .record(&Policy::default())
}

/// The outcome will not become known any more.
fn closed(problem: Problem) -> Problem {
    let detail = "The request was sent to the service, and no complete answer came back, so it may have been \
                  executed; this outcome is final. Check with the service what was done before you send it \
                  again.";
    Problem { retry: Retry::Never, detail: detail.to_owned(), ..problem }
}

/// The inner service answered, and the store did not take the answer in time.
pub(crate) fn unsettled(policy: &Policy) -> Response<Body> {
    Problem::outcome_unknown(StatusCode::BAD_GATEWAY, Recovery::Hold).response(policy)
}

/// For a service that passes requests on and proved that this one never left: the claim is given back.
pub fn upstream_unreachable(policy: &Policy) -> Response<Body> {
    let detail = "The request could not be delivered to the service, so it was not executed. It is safe to send it \
                  again; if it has a key, with that key.";
    let problem =
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, &kind::UPSTREAM_UNREACHABLE, detail);
    let mut response = problem.after(RETRY_AFTER_S).response(policy);
    response.extensions_mut().insert(NotSent);
    response
}

/// For a service that passes unguarded requests on, and got no answer.
pub fn upstream_failed(policy: &Policy) -> Response<Body> {
    let detail = format!("The service closed the connection before it answered. {NO_KEY}");
    Problem::new(StatusCode::BAD_GATEWAY, &kind::UPSTREAM_FAILED, detail).response(policy)
}

/// For a service that passes unguarded requests on, and got no answer in time.
pub fn upstream_timeout(policy: &Policy) -> Response<Body> {
    let detail = format!("The service did not answer in time. {NO_KEY}");
    Problem::new(StatusCode::GATEWAY_TIMEOUT, &kind::UPSTREAM_TIMEOUT, detail).response(policy)
}

/// For a client of a server that holds too many answers which their clients do not read.
pub fn answer_not_sent(policy: &Policy) -> Response<Body> {
    let detail = "This server holds too many answers that their clients have not read, so this one was not \
                  sent. Retry with the same key: what was executed is not executed again, and its stored answer is \
                  sent.";
    // Without Retry-After, which says of a 503 that nothing was executed.
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, &kind::RESPONSE_NOT_SENT, detail).response(policy)
}

/// For a request that two servers on its way could read differently; `why` is a whole sentence.
pub fn request_ambiguous(policy: &Policy, why: &str) -> Response<Body> {
    let detail = format!("{why} {NOT_EXECUTED}");
    Problem::new(StatusCode::BAD_REQUEST, &kind::REQUEST_AMBIGUOUS, detail).response(policy)
}

/// For a keyed request with a method such as `patch`, which HTTP tells from PATCH and many services do not; or with
/// one in a header.
pub fn method_unclear(policy: &Policy) -> Response<Body> {
    Problem::method_unclear().response(policy)
}

/// For CONNECT, on a server that opens no tunnels.
pub fn method_not_allowed(policy: &Policy) -> Response<Body> {
    let detail =
        "CONNECT asks for a tunnel, and this server opens none. This request was not executed.";
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, &kind::METHOD_NOT_ALLOWED, detail);
    let mut response = problem.response(policy);
    // RFC 9110 asks for the methods that are allowed: the service decides, so the list is empty.
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(""));
    response
}

/// A stored response, as an answer of ours.
pub(crate) fn own(stored: &record::Response) -> Response<Body> {
    let (body, trailers) = match &stored.body {
        Kept::Bytes { body, trailers } => (body.clone(), trailers.clone()),
        Kept::No(_) => (Bytes::new(), None),
    };
    let mut response = Response::new(Body::kept(body, trailers));
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers.clone();
    response.extensions_mut().insert(OwnAnswer);
    response
}

/// Where the key is expected, in words.
fn places(sources: &[KeySource]) -> String {
    let places = sources.iter().filter_map(|source| match source {
        KeySource::Header(name) => Some(format!("the header {}", spelled(name))),
        KeySource::Json(pointer) => Some(format!("the member {pointer} of the JSON body")),
        KeySource::Query(name) => Some(format!("the query parameter {name}")),
        KeySource::Form(name) => Some(format!("the form field {name}")),
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

/// Where a service tells what it promises about keys.
pub const WELL_KNOWN: &str = "/.well-known/idempotency";
const DESCRIBED_BY: &str = "</.well-known/idempotency>; rel=\"describedby\"";
const RETRY_AFTER_S: u32 = 1;
/// Of an unknown outcome that only a person resolves.
const HELD_RETRY_AFTER_S: u32 = 60;
/// Of an unknown outcome that the next retries may resolve.
const RECOVERING_RETRY_AFTER_S: u32 = 5;
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
/// Of this request alone: an earlier one with the same key may have been.
const NOT_EXECUTED: &str = "This request was not executed.";
const NO_KEY: &str = "The request had no idempotency key, and it may have been executed: send it again only if \
                      executing it twice does no harm.";
