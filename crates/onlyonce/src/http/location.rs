//! `keep = "location"`: of an operation only status and `Location` are stored, and a retry gets what is there now.
//!
//! 1. The inner service is asked by a GET with the headers of the caller that retries: what that caller may no longer see,
//!    it does not get.
//! 2. Only a `Location` of the host that the client asked is fetched. Everywhere else the retry gets status and `Location`.
//! 3. Nothing is executed again, whatever the GET gives.

use std::future::poll_fn;

use axum::extract::{MatchedPath, OriginalUri};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use tokio::time::timeout;
use tower_service::Service;

use super::capture::Claimed;
use super::client_uri::{ClientUri, Sent};
use super::layer::Rules;
use super::request::host_field;
use super::{Body, IDEMPOTENCY_ATTEMPT, IDEMPOTENT_REPLAYED, OwnAnswer, headers};
use crate::fingerprint::is_method_override;
use crate::key::{Key, KeySource};
use crate::once::{Attempt, Refusal};
use crate::policy::{IDEMPOTENCY_KEY, Keep, Policy};
use crate::problem::Problem;
use crate::record::{Kept, NotKept};
use crate::store::BoxError;

/// The answer to a request that was not executed; with what its operation points to, if that is to be fetched.
pub(super) async fn shown<S, A>(
    fetch: Option<Box<Fetch<S>>>,
    refusal: &Refusal,
    policy: &Policy,
    answer: Response<Body>,
) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<A>>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let request = fetch.zip(kept_location(refusal)).and_then(|(fetch, location)| {
        let request = get(fetch.head, location, policy)?;
        Some((fetch.inner, request))
    });
    match request {
        // In a box, so that the future of every other request is small.
        Some((inner, request)) => Box::pin(fetched(inner, request, policy, answer)).await,
        None => answer,
    }
}

/// What is needed to fetch what an operation points to, for the caller of this request.
pub(super) struct Fetch<S> {
    inner: S,
    head: Parts,
}

impl<S: Clone> Fetch<S> {
    /// In a box, so that the future of every other request is small.
    pub(super) fn prepare(rules: &Rules, inner: &S, head: &Parts) -> Option<Box<Self>> {
        if rules.policy.keep() != Keep::Location || !rules.fetches_locations {
            return None;
        }
        // A router that has routed the request already may have one handler inside, which would take the GET for its
        // operation.
        let is_routed = head.extensions.get::<MatchedPath>().is_some();
        let is_whole = Sent::of(head).path == head.uri.path();
        (!is_routed && is_whole)
            .then(|| Box::new(Self { inner: inner.clone(), head: head.clone() }))
    }
}

fn kept_location(refusal: &Refusal) -> Option<&HeaderValue> {
    match refusal {
        Refusal::Replay(stored) if stored.body == Kept::No(NotKept::Location) => {
            stored.headers.get(header::LOCATION)
        }
        _ => None,
    }
}

async fn fetched<S, A>(
    mut inner: S,
    request: Request<Body>,
    policy: &Policy,
    stored: Response<Body>,
) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<A>>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    let asking = async {
        poll_fn(|cx| inner.poll_ready(cx)).await?;
        inner.call(request).await
    };
    match timeout(policy.upstream_timeout(), asking).await {
        Ok(Ok(found)) => told(found.map(Body::new), stored, policy),
        Ok(Err(_)) | Err(_) => Problem::answer_not_fetched().response(policy),
    }
}

/// What the retry gets, given what the inner service has `found` and the answer that has only what is `stored`.
fn told(mut found: Response<Body>, stored: Response<Body>, policy: &Policy) -> Response<Body> {
    headers::for_first_caller(found.headers_mut());
    // The gateway's own words about the GET: that the service was not reached, or did not answer.
    let is_failure = found.extensions().get::<OwnAnswer>().is_some();
    match found.status() {
        _ if is_failure => Problem::answer_not_fetched().response(policy),
        status if status.is_success() => joined(found, &stored),
        status if status.is_redirection() => stored,
        // It may only not be there yet: the caller can ask the `Location` itself.
        StatusCode::NOT_FOUND => stored,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => found,
        StatusCode::GONE => Problem::response_unavailable(stored.status()).response(policy),
        _ => Problem::answer_not_fetched().response(policy),
    }
}

/// The content that was found, under the status and the `Location` that are stored.
fn joined(mut found: Response<Body>, stored: &Response<Body>) -> Response<Body> {
    *found.status_mut() = stored.status();
    for name in [header::LOCATION, IDEMPOTENT_REPLAYED] {
        if let Some(value) = stored.headers().get(&name) {
            found.headers_mut().insert(name, value.clone());
        }
    }
    found
}

/// The GET of `location`, as the caller of the request with this head would send it.
fn get(mut head: Parts, location: &HeaderValue, policy: &Policy) -> Option<Request<Body>> {
    let mut uri = head.uri.clone().into_parts();
    uri.path_and_query = Some(target(&head, location)?);
    head.uri = Uri::from_parts(uri).ok()?;
    head.method = Method::GET;
    head.headers = caller_headers(&head.headers, policy);
    head.extensions.remove::<ClientUri>();
    head.extensions.remove::<OriginalUri>();
    // Those of a layer further out, if that executes this request.
    head.extensions.remove::<Attempt>();
    head.extensions.remove::<Key>();
    head.extensions.remove::<Claimed>();
    Some(Request::from_parts(head, Body::default()))
}

/// Path and query of `location`, if it is of the host that was asked.
fn target(head: &Parts, location: &HeaderValue) -> Option<PathAndQuery> {
    let text = location.to_str().ok()?;
    if text.starts_with('/') && !text.starts_with("//") {
        return text.parse().ok();
    }
    let uri: Uri = text.parse().ok()?;
    let asked = head.uri.authority().map(|authority| authority.as_str());
    let asked = asked.or_else(|| host_field(head))?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
    let is_same = same_host(uri.authority()?.as_str(), asked);
    uri.path_and_query().filter(|_| is_http && is_same).cloned()
}

/// A proxy in front may have ended TLS, so that the scheme and its usual port say nothing here.
fn same_host(one: &str, other: &str) -> bool {
    let named = |host: &str| {
        let host = host.to_ascii_lowercase();
        let usual = host.strip_suffix(":443").or_else(|| host.strip_suffix(":80"));
        usual.map(str::to_owned).unwrap_or(host)
    };
    named(one) == named(other)
}

/// The headers that say who asks and how, and nothing about the body, the key or the method of the operation.
fn caller_headers(headers: &HeaderMap, policy: &Policy) -> HeaderMap {
    let is_key = |name: &HeaderName| {
        let named = |source: &KeySource| matches!(source, KeySource::Header(key) if key == name);
        *name == IDEMPOTENCY_KEY || policy.key_from().iter().any(named)
    };
    let is_about_operation = |name: &HeaderName| {
        OF_OPERATION.contains(name)
            || is_method_override(name)
            || PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
    };
    let fields = headers.iter().filter(|(name, _)| !is_key(name) && !is_about_operation(name));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

const OF_OPERATION: [HeaderName; 8] = [
    IDEMPOTENCY_ATTEMPT,
    header::EXPECT,
    header::RANGE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("digest"),
    HeaderName::from_static("repr-digest"),
];
/// Of the body, of conditions, and of another protocol for keys.
const PREFIXES: [&str; 3] = ["content-", "if-", "repeatability-"];

#[cfg(test)]
mod tests {
    use super::*;

    fn head(host: &str) -> Parts {
        let request = Request::post("/jobs?a=1").header("host", host);
        request.body(()).unwrap().into_parts().0
    }

    fn seen(host: &str, location: &str) -> Option<String> {
        let target = target(&head(host), &location.parse().unwrap());
        target.map(|target| target.to_string())
    }

    #[test]
    fn a_location_of_the_host_that_was_asked_is_fetched() {
        for location in [
            "/jobs/1?b=2",
            "/jobs/1?b=2#part",
            "http://api.test/jobs/1?b=2",
            "https://API.test:443/jobs/1?b=2",
            "HTTPS://api.test/jobs/1?b=2",
        ] {
            assert_eq!(seen("api.test", location).as_deref(), Some("/jobs/1?b=2"), "{location}");
        }
        assert_eq!(seen("api.test:80", "http://api.test").as_deref(), Some("/"));
        assert_eq!(seen("[::1]:8080", "http://[::1]:8080/x").as_deref(), Some("/x"));
    }

    #[test]
    fn a_location_elsewhere_is_not_fetched() {
        for location in [
            "//other.test/jobs/1",
            "//api.test/jobs/1",
            "http://other.test/jobs/1",
            "http://api.test.other.test/jobs/1",
            "http://api.test@other.test/jobs/1",
            "http://user@api.test/jobs/1",
            "http://api.test:8080/jobs/1",
            "ftp://api.test/jobs/1",
            "urn:jobs:1",
            "jobs/1",
            "",
        ] {
            assert_eq!(seen("api.test", location), None, "{location}");
        }
    }

    #[test]
    fn the_caller_asks_as_itself_and_says_nothing_of_the_operation() {
        let policy = Policy::default().with_key_from(["header:X-Key".parse().unwrap()]);
        let lines = [
            ("authorization", "Bearer a"),
            ("cookie", "s=1"),
            ("accept", "text/plain"),
            ("origin", "https://shop.test"),
            ("x-key", "k"),
            ("idempotency-key", "k"),
            ("idempotency-attempt", "1"),
            ("content-type", "application/json"),
            ("content-length", "3"),
            ("content-digest", "x"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("upgrade", "websocket"),
            ("if-none-match", "*"),
            ("range", "bytes=0-1"),
            ("x-http-method-override", "POST"),
            ("repeatability-first-sent", "x"),
        ];
        let lines = lines
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let sent = caller_headers(&HeaderMap::from_iter(lines), &policy);
        let mut names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "authorization", "cookie", "origin"]);
    }
}
