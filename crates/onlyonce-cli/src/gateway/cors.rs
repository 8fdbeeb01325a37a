//! Lets pages of allowed origins read the gateway's own answers: refusals and replays.
//!
//! What the service answers is the service's to allow. Preflight requests go to the service too.

use http::Response;
use http::header::{self, HeaderMap, HeaderValue};
use onlyonce::http::{Body, OwnAnswer};

use crate::config::CorsOrigin;

/// The origins of a route.
#[derive(Clone, Debug)]
pub(super) struct Cors(Vec<CorsOrigin>);

impl Cors {
    pub(super) fn new(origins: &[CorsOrigin]) -> Self {
        Self(origins.to_vec())
    }

    /// What `Access-Control-Allow-Origin` says to a request with these headers; `None` if its origin is not allowed.
    pub(super) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?;
        self.0.iter().find_map(|allowed| match allowed {
            CorsOrigin::Any => Some(ANY),
            CorsOrigin::One(one) => (one == origin).then(|| one.clone()),
        })
    }
}

/// The answer, which pages of the `allowed` origin can read if the gateway made it.
pub(super) fn readable(mut answer: Response<Body>, allowed: Option<HeaderValue>) -> Response<Body> {
    if let Some(allowed) = allowed.filter(|_| is_own(&answer)) {
        allow(answer.headers_mut(), allowed);
    }
    answer
}

fn is_own(answer: &Response<Body>) -> bool {
    answer.extensions().get::<OwnAnswer>().is_some()
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    if origin == ANY {
        headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
    } else {
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

const ANY: HeaderValue = HeaderValue::from_static("*");
const EXPOSED: HeaderValue = HeaderValue::from_static("idempotent-replayed, retry-after");
