//! Which headers of an answer are kept, and which headers an inner service sees.

use http::Response;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::{Body, IDEMPOTENCY_ATTEMPT, IDEMPOTENCY_STORE, IDEMPOTENT_REPLAYED};

/// The headers of an answer that a retry may see, copied out of the network's buffers.
pub fn kept(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut kept = HeaderMap::new();
    for (name, value) in headers {
        if !is_never_kept(name) && !named.contains(name) {
            kept.append(name.clone(), copied(value));
        }
    }
    kept
}

/// The trailers, copied out of the network's buffers; gRPC has its status there.
pub(super) fn kept_trailers(trailers: &HeaderMap) -> HeaderMap {
    trailers.iter().map(|(name, value)| (name.clone(), copied(value))).collect()
}

/// Prepares the headers for the inner service: adds the number of the attempt, and removes `Accept-Encoding`, because
/// the kept answer may go to a client that does not understand the coding.
pub(crate) fn for_inner(headers: &mut HeaderMap, attempt: u32) {
    headers.insert(IDEMPOTENCY_ATTEMPT, HeaderValue::from(attempt));
    headers.remove(header::ACCEPT_ENCODING);
}

/// Removes the headers that only this layer may set.
pub(crate) fn for_first_caller(headers: &mut HeaderMap) {
    headers.remove(IDEMPOTENT_REPLAYED);
    headers.remove(IDEMPOTENCY_STORE);
}

/// Prepares a replay for a page of `origin`: removes a CORS permission that was stored for another origin.
pub(super) fn for_origin(
    origin: impl FnOnce() -> Option<HeaderValue>,
    mut answer: Response<Body>,
) -> Response<Body> {
    let stored = answer.headers().get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
    let stored_for = stored.filter(|stored| *stored != "*");
    if stored_for.is_some_and(|stored| origin().is_some_and(|origin| origin != stored)) {
        answer.headers_mut().remove(header::ACCESS_CONTROL_ALLOW_ORIGIN);
        answer.headers_mut().remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
    }
    answer
}

fn copied(value: &HeaderValue) -> HeaderValue {
    let mut copy = HeaderValue::from_bytes(value.as_bytes()).expect("it was a header value");
    copy.set_sensitive(value.is_sensitive());
    copy
}

/// The fields that `Connection` names, which belong to one hop.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values =
        headers.get_all(header::CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

fn is_never_kept(name: &HeaderName) -> bool {
    let name = name.as_str();
    NEVER_KEPT.contains(&name) || NEVER_KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Headers that belong to one hop, to one caller or to one moment.
const NEVER_KEPT: [&str; 33] = [
    "age",
    "authentication-info",
    "authorization",
    "baggage",
    "connection",
    "content-length",
    "date",
    "idempotency-store",
    "idempotent-replayed",
    "keep-alive",
    "mcp-session-id",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "request-id",
    "retry-after",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-correlation-id",
    "x-request-id",
    "x-trace-id",
    "x-runtime",
];
const NEVER_KEPT_PREFIXES: [&str; 4] = ["ratelimit", "x-ratelimit-", "x-rate-limit-", "x-b3-"];
