//! The only place that picks a status: what a client is told, as RFC 9457 problem documents.

mod stripe;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Body, IDEMPOTENT_REPLAYED, NotSent};
use crate::key::KeyError;
use crate::once::Refusal;
use crate::policy::{Errors, Mismatch, Policy, Recovery};
use crate::record::{self, Kept};

/// What a client is told when it does not get the answer of the inner service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    retry: Retry,
    retry_after_s: Option<u32>,
    original_status: Option<u16>,
    /// The key in question, for a shape that repeats it.
    key: String,
    errors: Errors,
}

/// Whether sending again is safe, and with which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    SameKey,
    NewKey,
    Never,
}

impl Problem {
    fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: &str,
        retry: Retry,
    ) -> Self {
        let detail = detail.to_owned();
        Self {
            status,
            code,
            title,
            detail,
            retry,
            retry_after_s: None,
            original_status: None,
            key: String::new(),
            errors: Errors::Problem,
        }
    }

    fn after(self, seconds: u32) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    pub(crate) fn key_missing() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "idempotency_key_missing",
            "Idempotency-Key is missing",
            "This operation needs a key. Make one per operation and send it again with every retry of it.",
            Retry::NewKey,
        )
    }

    pub(crate) fn key_invalid(error: &KeyError) -> Self {
        let problem = Self::new(
            StatusCode::BAD_REQUEST,
            "idempotency_key_invalid",
            "Idempotency-Key is not valid",
            "",
            Retry::NewKey,
        );
        Self {
            detail: format!("The key cannot be used: {error}. Nothing was executed."),
            ..problem
        }
    }

    pub(crate) fn principal_unclear(why: &str) -> Self {
        let problem = Self::new(
            StatusCode::BAD_REQUEST,
            "principal_unclear",
            "Who is asking cannot be told",
            "",
            Retry::Never,
        );
        Self { detail: format!("{why} Nothing was executed."), ..problem }
    }

    pub(crate) fn anonymous() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "principal_missing",
            "Nobody is asking",
            "A key needs a caller to belong to. Send your credentials with it; nothing was executed.",
            Retry::SameKey,
        )
    }

    pub(crate) fn request_too_large() -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "request_too_large",
            "The request is too large",
            "Its body is larger than this operation takes. Nothing was executed and the key is free.",
            Retry::Never,
        )
    }

    pub(crate) fn request_incomplete() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "request_incomplete",
            "The request is incomplete",
            "Its body ended early. Nothing was executed; send it again with the same key.",
            Retry::SameKey,
        )
    }

    pub(crate) fn overloaded() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded",
            "Too much is under way",
            "Nothing was executed. Send the request again with the same key, a little later.",
            Retry::SameKey,
        )
        .after(RETRY_AFTER_S)
    }

    fn key_reused(mismatch: Mismatch) -> Self {
        let status = match mismatch {
            Mismatch::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
            Mismatch::Conflict => StatusCode::CONFLICT,
        };
        Self::new(
            status,
            "idempotency_key_reused",
            "Idempotency-Key is already used",
            "This key belongs to another request. Nothing was executed; use a key of its own for this one.",
            Retry::NewKey,
        )
    }

    fn in_progress() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "idempotency_in_progress",
            "A request is outstanding for this Idempotency-Key",
            "The first request with this key is still at work. Send it again with the same key to get its answer.",
            Retry::SameKey,
        )
        .after(RETRY_AFTER_S)
    }

    /// For one who asks about an operation that nobody has heard of.
    pub(crate) fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "idempotency_operation_not_found",
            "No such operation",
            "Nothing is known of an operation of yours with this key. It was not executed, or is forgotten.",
            Retry::SameKey,
        )
    }

    pub(crate) fn request_too_slow() -> Self {
        let problem = Self::request_incomplete();
        Self { status: StatusCode::REQUEST_TIMEOUT, ..problem }
    }

    /// For a retry.
    fn held() -> Self {
        Self { status: StatusCode::CONFLICT, ..Self::outcome_unknown(StatusCode::CONFLICT) }
            .after(UNKNOWN_RETRY_AFTER_S)
    }

    /// For the first caller.
    fn outcome_unknown(status: StatusCode) -> Self {
        Self::new(
            status,
            "idempotency_outcome_unknown",
            "The outcome is unknown",
            "The request was sent on and may have been executed. It is not run again by itself; \
             ask again with the same key, never with a new one.",
            Retry::SameKey,
        )
    }

    pub(crate) fn store_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "idempotency_store_unavailable",
            "The record of this key cannot be reached",
            "Nothing was executed. Send the request again with the same key, a little later.",
            Retry::SameKey,
        )
        .after(RETRY_AFTER_S)
    }

    fn response_unavailable(original: StatusCode) -> Self {
        let problem = Self::new(
            StatusCode::GONE,
            "idempotency_response_unavailable",
            "The answer is no longer there",
            "The request was executed, and its answer was not kept. Do not send it again; look at what it made.",
            Retry::Never,
        );
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
            "type": format!("{WELL_KNOWN}#{}", self.code),
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
            "code": self.code,
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
        fresh(&self.record(policy))
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

/// The problem of a refusal; a replay is none.
pub(crate) fn refused(refusal: &Refusal, policy: &Policy, key: &str) -> Response<Body> {
    let problem = match refusal {
        Refusal::Replay(response) => return replay(response, policy),
        Refusal::Reused => Problem::key_reused(policy.mismatch),
        Refusal::InProgress => Problem::in_progress(),
        Refusal::Unknown { .. } => Problem::held(),
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
    let mut response = fresh(stored);
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
    let problem = Problem::outcome_unknown(status);
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
    closed(Problem::outcome_unknown(StatusCode::BAD_GATEWAY)).record(&Policy::default())
}

/// Nobody will find out any more.
fn closed(problem: Problem) -> Problem {
    let detail = "The request was sent on and may have been executed; its outcome stays unknown. \
                  Do not send it again before you have looked at what it did.";
    Problem { retry: Retry::Never, detail: detail.to_owned(), ..problem }
}

/// The inner service answered, and the store did not take the answer in time.
pub(crate) fn unsettled(policy: &Policy) -> Response<Body> {
    Problem::outcome_unknown(StatusCode::BAD_GATEWAY).response(policy)
}

/// For a service that passes requests on and proved that this one never left: the claim is given back.
pub fn upstream_unreachable(policy: &Policy) -> Response<Body> {
    let problem = Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "upstream_unreachable",
        "The service behind cannot be reached",
        "The request never reached it and nothing was executed. Send it again; if it has a key, with that key.",
        Retry::SameKey,
    );
    let mut response = problem.after(RETRY_AFTER_S).response(policy);
    response.extensions_mut().insert(NotSent);
    response
}

/// For a service that passes unguarded requests on, and got no answer.
pub fn upstream_failed(policy: &Policy) -> Response<Body> {
    let detail = "The request may have been executed. Without a key it is not safe to send it again \
                  unless it is safe by itself.";
    Problem::new(
        StatusCode::BAD_GATEWAY,
        "upstream_failed",
        "The service behind did not answer",
        detail,
        Retry::Never,
    )
    .response(policy)
}

/// For a service that passes unguarded requests on, and got no answer in time.
pub fn upstream_timeout(policy: &Policy) -> Response<Body> {
    let problem = Problem::new(
        StatusCode::GATEWAY_TIMEOUT,
        "upstream_timeout",
        "The service behind did not answer in time",
        "The request may have been executed. Without a key it is not safe to send it again unless it \
         is safe by itself.",
        Retry::Never,
    );
    problem.response(policy)
}

/// A stored response as its first caller gets it.
pub(crate) fn fresh(stored: &record::Response) -> Response<Body> {
    let (body, trailers) = match &stored.body {
        Kept::Bytes { body, trailers } => (body.clone(), trailers.clone()),
        Kept::No(_) => (Bytes::new(), None),
    };
    let mut response = Response::new(Body::kept(body, trailers));
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers.clone();
    response
}

/// A sentence for each code, for people who look it up.
pub const SENTENCES: [(&str, &str); 16] = [
    (
        "idempotency_operation_not_found",
        "Nothing is known of an operation of the caller with this key.",
    ),
    ("idempotency_key_missing", "This operation needs a key; make one per operation."),
    ("idempotency_key_invalid", "The key is malformed, empty, doubled or too long."),
    ("idempotency_key_reused", "The key belongs to another request; use a new one for this."),
    ("idempotency_in_progress", "The first request with this key is still at work; ask again."),
    (
        "idempotency_outcome_unknown",
        "It may have been executed and nobody knows; it is not run again.",
    ),
    ("idempotency_response_unavailable", "It was executed, and its answer was not kept."),
    (
        "idempotency_store_unavailable",
        "The record of the key cannot be reached; nothing was executed.",
    ),
    ("principal_unclear", "Who is asking cannot be told, so the key belongs to nobody."),
    ("principal_missing", "A key needs a caller to belong to; send credentials."),
    ("request_too_large", "The body is larger than the operation takes; the key is free."),
    ("request_incomplete", "The body ended early or came too slowly; the key is free."),
    ("overloaded", "Too much is under way; nothing was executed, try again."),
    ("upstream_unreachable", "The request never reached the service; nothing was executed."),
    ("upstream_failed", "The service did not answer a request that had no key."),
    ("upstream_timeout", "The service did not answer in time a request that had no key."),
];

/// Where a service tells what it promises about keys.
pub const WELL_KNOWN: &str = "/.well-known/idempotency";
const DESCRIBED_BY: &str = "</.well-known/idempotency>; rel=\"describedby\"";
const RETRY_AFTER_S: u32 = 1;
const UNKNOWN_RETRY_AFTER_S: u32 = 5;
