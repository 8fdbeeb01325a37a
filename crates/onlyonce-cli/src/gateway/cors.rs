//! Lets pages of allowed origins read the gateway's own answers: refusals and replays.
//!
//! What the service answers is the service's to allow. Preflight requests go to the service too.

use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, response::Parts};
use onlyonce::http::{Body, OwnAnswer};

use crate::config::CorsOrigin;

/// The origins of a route.
#[derive(Clone, Debug)]
pub(super) struct Cors(Vec<CorsOrigin>);

impl Cors {
    pub(super) fn new(origins: &[CorsOrigin]) -> Self {
        Self(origins.to_vec())
    }

    /// The answer to a request from `origin`, readable there if the origin is allowed.
    pub(super) fn readable(
        &self,
        origin: Option<&HeaderValue>,
        answer: Response<Body>,
    ) -> Response<Body> {
        let Some(allowed) = origin.and_then(|origin| self.allowed(origin)) else {
            return answer;
        };
        let (mut head, body) = answer.into_parts();
        if is_own(&head) {
            allow(&mut head.headers, allowed);
        }
        Response::from_parts(head, body)
    }

    /// What `Access-Control-Allow-Origin` says to this origin.
    fn allowed(&self, origin: &HeaderValue) -> Option<HeaderValue> {
        self.0.iter().find_map(|allowed| match allowed {
            CorsOrigin::Any => Some(ANY),
            CorsOrigin::One(one) => (one == origin).then(|| one.clone()),
        })
    }
}

fn is_own(head: &Parts) -> bool {
    head.extensions.get::<OwnAnswer>().is_some()
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
