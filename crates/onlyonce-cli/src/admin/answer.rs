//! Answers: JSON, text, problems, and the headers that every answer has.

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use onlyonce::OperateError;
use onlyonce::store::{BoxError, Fault, StoreError};
use serde_json::{Value, json};

use super::page;

/// A body that is whole, or one that comes piece by piece.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Answer = Response<Body>;

/// Why a request is not answered as asked. The detail says what to do.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub(super) fn not_found(detail: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(super) fn answer(self) -> Answer {
        let Self { status, code, detail } = self;
        let title = status.canonical_reason().unwrap_or("Problem");
        let problem = json!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "code": code, "detail": detail,
        });
        of_type("application/problem+json", status, problem.to_string())
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        match &error {
            OperateError::NotFound => Self::not_found(NO_OPERATION),
            OperateError::StateForbids { .. } => {
                Self::new(StatusCode::CONFLICT, "state_forbids", error.to_string())
            }
            OperateError::TooEarly { at } => Self::new(
                StatusCode::CONFLICT,
                "state_forbids",
                format!(
                    "the first attempt may still arrive until {}; wait, or use force if you know that it cannot",
                    at.rfc3339()
                ),
            ),
            OperateError::Changed => Self::new(StatusCode::CONFLICT, "changed", error.to_string()),
            OperateError::NoTrail => Self::new(
                StatusCode::NOT_FOUND,
                "audit_off",
                "this gateway keeps no audit trail; set [audit] in its configuration",
            ),
            OperateError::Store(fault) => Self::from(fault),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", error.to_string()),
        }
    }
}

impl From<&Fault> for Problem {
    fn from(fault: &Fault) -> Self {
        match fault.error() {
            StoreError::Unreadable(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "record_unreadable",
                "a record cannot be read; it is kept as it is, and its key stays refused",
            ),
            StoreError::Refused(_) => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "the store does not take this answer; write a shorter one",
            ),
            _ => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store_unavailable",
                match fault {
                    Fault::NotDone(_) => {
                        "the store does not answer, and nothing was changed; try again later"
                    }
                    Fault::Unsure(_) => {
                        "the store does not answer, and the change may have been made: look before you repeat it"
                    }
                },
            ),
        }
    }
}

pub(super) const NO_OPERATION: &str =
    "there is no operation with this id; it may have expired or been forgotten";

pub(super) fn json(value: &Value) -> Answer {
    of_type("application/json", StatusCode::OK, value.to_string())
}

pub(super) fn text(status: StatusCode, text: &'static str) -> Answer {
    of_type("text/plain; charset=utf-8", status, text)
}

pub(super) fn of_type(
    media_type: &'static str,
    status: StatusCode,
    body: impl Into<Bytes>,
) -> Answer {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    streamed(media_type, status, body)
}

pub(super) fn streamed(media_type: &'static str, status: StatusCode, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

/// What every answer has: nothing here may be cached, framed, sniffed, or read by another site.
pub(super) fn secure(mut answer: Answer) -> Answer {
    for (name, value) in SECURITY {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

const SECURITY: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];
