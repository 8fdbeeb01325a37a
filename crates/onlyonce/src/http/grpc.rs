//! gRPC: what the status of an answer means, and our own answers as a gRPC client reads them.
//!
//! 1. A gRPC answer has HTTP status 200 and its own status in the trailers, or in the head of an answer without a body.
//! 2. A status of the service is judged as the HTTP status that means the same: UNAUTHENTICATED as 401, UNAVAILABLE as 504.
//!    After a message, none of them says that nothing was executed.
//! 3. A gRPC client reads no JSON: a problem of ours becomes a gRPC status, with `google.rpc.ErrorInfo` (its reason is the
//!    code of the problem, its metadata has `retry`) and, where there is a `Retry-After`, `google.rpc.RetryInfo`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use serde_json::Value;

use super::{Body, OwnAnswer};
use crate::body::is_grpc_type;
use crate::code::{Code, DESCRIBED_BY, GRPC_DOMAIN};

/// Whether these headers are those of a gRPC message. gRPC-Web is another protocol.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    is_grpc_type(media_type)
}

/// The HTTP status that means the same as the gRPC status in these headers or trailers, where that decides whether the
/// answer is kept. Every other gRPC status is an answer, and kept.
pub(super) fn http_status(fields: &HeaderMap) -> Option<StatusCode> {
    match fields.get(GRPC_STATUS)?.as_bytes() {
        // Cancelled, deadline exceeded, unavailable: a proxy or the server itself may have begun it. Resource exhausted is
        // also what a server says of an answer that is too large, after it has executed the call.
        b"1" | b"4" | b"8" | b"14" => Some(StatusCode::GATEWAY_TIMEOUT),
        b"7" => Some(StatusCode::FORBIDDEN),
        b"16" => Some(StatusCode::UNAUTHORIZED),
        _ => None,
    }
}

/// A problem of ours as a gRPC status; every other answer as it is. A stored problem is ours if it names our description:
/// a replay may also be a problem of the service.
pub fn readable(answer: Response<Body>) -> Response<Body> {
    let is_own = answer.extensions().get::<OwnAnswer>().is_some()
        && answer.headers().get(header::LINK).is_some_and(|value| value == DESCRIBED_BY);
    let media_type = answer.headers().get(header::CONTENT_TYPE);
    let is_problem = is_own && media_type.is_some_and(|value| value == "application/problem+json");
    let problem = is_problem.then(|| answer.body().held()).flatten();
    match problem.and_then(|json| serde_json::from_slice(json).ok()) {
        Some(problem) => status(&answer, &problem),
        None => answer,
    }
}

/// An answer without a body, whose head has the status.
fn status(answer: &Response<Body>, problem: &Value) -> Response<Body> {
    let text = |member: &str| problem[member].as_str().unwrap_or_default();
    let message = text("detail");
    let info = Info { reason: text("code"), retry: text("retry") };
    let code = status_of(answer.status(), Code::from_text(info.reason));
    let retry_after = answer.headers().get(header::RETRY_AFTER);
    let retry_after_s = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let details = details(code, &info, message, retry_after_s);
    let mut told = Response::new(Body::kept(Bytes::new(), None));
    told.extensions_mut().insert(OwnAnswer);
    let headers = told.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, HeaderValue::from(code));
    for (name, value) in [
        (GRPC_MESSAGE, percent_encoded(message)),
        (GRPC_STATUS_DETAILS, STANDARD_NO_PAD.encode(details)),
    ] {
        headers.extend(HeaderValue::try_from(value).ok().map(|value| (name, value)));
    }
    told
}

/// The gRPC status of a problem. Where the request may have been executed it is none that clients retry by themselves; so
/// too for a stored problem whose code a newer version wrote.
fn status_of(status: StatusCode, code: Option<Code>) -> u16 {
    let Some(code) = code else { return UNKNOWN };
    if status == StatusCode::GATEWAY_TIMEOUT {
        return DEADLINE_EXCEEDED;
    }
    match code {
        Code::OutcomeUnknown
        | Code::ResponseNotSent
        | Code::OperationFailed
        | Code::AuthorizationUnknown
        | Code::UpstreamFailed
        | Code::UpstreamTimeout => UNKNOWN,
        Code::KeyReused | Code::KeyExpired => FAILED_PRECONDITION,
        Code::InProgress | Code::RolledBack => ABORTED,
        Code::ResponseUnavailable => ALREADY_EXISTS,
        Code::PrincipalMissing | Code::PrincipalInvalid | Code::WebhookSignatureInvalid => {
            UNAUTHENTICATED
        }
        Code::NotFound | Code::NoTokens => NOT_FOUND,
        Code::RequestTooLarge | Code::VelocityExceeded => RESOURCE_EXHAUSTED,
        Code::StoreUnavailable | Code::Overloaded | Code::TooEarly | Code::UpstreamUnreachable => {
            UNAVAILABLE
        }
        Code::KeyMissing
        | Code::KeyInvalid
        | Code::PrincipalUnclear
        | Code::RequestIncomplete
        | Code::RequestAmbiguous
        | Code::MethodNotAllowed => INVALID_ARGUMENT,
        Code::RepeatabilityUnsupported => UNIMPLEMENTED,
        Code::DeadlineExceeded => DEADLINE_EXCEEDED,
    }
}

/// What `google.rpc.ErrorInfo` has of a problem.
struct Info<'a> {
    reason: &'a str,
    retry: &'a str,
}

/// A `google.rpc.Status`, in the wire format of Protocol Buffers.
fn details(code: u16, info: &Info<'_>, message: &str, retry_after_s: Option<u64>) -> Vec<u8> {
    let retry = [field(1, b"retry"), field(2, info.retry.as_bytes())].concat();
    let info = [
        field(1, info.reason.as_bytes()),
        field(2, GRPC_DOMAIN.as_bytes()),
        // An entry of the map `metadata`.
        field(3, &retry),
    ];
    let info = info.concat();
    let mut status = number(1, code.into());
    status.extend(field(2, message.as_bytes()));
    status.extend(field(3, &any("google.rpc.ErrorInfo", &info)));
    if let Some(seconds) = retry_after_s {
        let retry = field(1, &number(1, seconds));
        status.extend(field(3, &any("google.rpc.RetryInfo", &retry)));
    }
    status
}

/// A `google.protobuf.Any`.
fn any(name: &str, message: &[u8]) -> Vec<u8> {
    let mut any = field(1, format!("type.googleapis.com/{name}").as_bytes());
    any.extend(field(2, message));
    any
}

/// A field of bytes: its number and type, its length, the bytes.
fn field(field: u64, bytes: &[u8]) -> Vec<u8> {
    let mut text = varint(field << 3 | 2);
    text.extend(varint(bytes.len() as u64));
    text.extend(bytes);
    text
}

fn number(field: u64, value: u64) -> Vec<u8> {
    let mut text = varint(field << 3);
    text.extend(varint(value));
    text
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// As gRPC writes a message: everything but printable ASCII, and the percent sign, in hexadecimal.
fn percent_encoded(message: &str) -> String {
    let encoded = message.bytes().map(|byte| match byte {
        b'%' => "%25".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    });
    encoded.collect()
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

const UNKNOWN: u16 = 2;
const INVALID_ARGUMENT: u16 = 3;
const DEADLINE_EXCEEDED: u16 = 4;
const NOT_FOUND: u16 = 5;
const ALREADY_EXISTS: u16 = 6;
const RESOURCE_EXHAUSTED: u16 = 8;
const FAILED_PRECONDITION: u16 = 9;
const ABORTED: u16 = 10;
const UNIMPLEMENTED: u16 = 12;
const UNAVAILABLE: u16 = 14;
const UNAUTHENTICATED: u16 = 16;
