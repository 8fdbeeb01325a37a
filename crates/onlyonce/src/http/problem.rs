//! The answers that are our own, as the layer sends them. Their statuses and words are in `crate::problem`.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderValue};

use super::repeatability::Refused;
use super::{Body, IDEMPOTENT_REPLAYED, NotSent, OwnAnswer, headers};
use crate::once::Refusal;
use crate::planted::{Planted, planted};
use crate::policy::Policy;
use crate::problem::Problem;
use crate::record::{self, Kept, NotKept};

impl Problem {
    /// The problem as the route of `policy` sends it.
    pub(crate) fn response(self, policy: &Policy) -> Response<Body> {
        let is_refusal = self.is_refusal();
        let mut response = own(&self.record(policy));
        if is_refusal {
            response.extensions_mut().insert(Refused);
        }
        response
    }
}

/// The answer to a request that was not executed: a replay, or a problem. `origin` finds that of the page that asks.
pub(crate) fn refused(
    refusal: &Refusal,
    policy: &Policy,
    key: &str,
    origin: impl FnOnce() -> Option<HeaderValue>,
) -> Response<Body> {
    let problem = match refusal {
        Refusal::Replay(response) => return headers::for_origin(origin, replay(response, policy)),
        Refusal::Reused => Problem::key_reused(policy.mismatch()),
        Refusal::Respelled => Problem::key_respelled(policy.mismatch()),
        Refusal::InProgress => Problem::in_progress(),
        Refusal::Unknown { .. } => Problem::held(policy.recovery()),
        Refusal::Unreadable => Problem::unreadable(),
        Refusal::StoreDown { .. } => Problem::store_unavailable(),
        Refusal::Overloaded => Problem::overloaded(),
        Refusal::DeadlineExceeded => Problem::deadline_exceeded(),
        Refusal::KeyExpired => Problem::key_expired(),
        Refusal::TokenExpired => Problem::token_invalid(policy),
        Refusal::VelocityExceeded { wait } => Problem::velocity_exceeded(*wait),
        Refusal::TooManyKeys { wait } => Problem::too_many_keys(*wait),
        Refusal::Unauthorized(response) => return own(response),
        Refusal::AuthorizationUnknown => Problem::authorization_unknown(),
    };
    problem.about_key(key).response(policy)
}

/// The stored answer, or 410 if its body was not kept; status and `Location`, if these were kept instead.
fn replay(stored: &Arc<record::Response>, policy: &Policy) -> Response<Body> {
    let is_kept = matches!(stored.body, Kept::Bytes { .. } | Kept::No(NotKept::Location));
    if !is_kept {
        return Problem::response_unavailable(stored.status).response(policy);
    }
    let mut response = own(stored);
    if planted(Planted::ReplayOtherStatus) {
        *response.status_mut() = http::StatusCode::OK;
    }
    if planted(Planted::ReplayWithoutBody) {
        response = response.map(|_| Body::default());
    }
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

/// The client's deadline has passed while the inner service was at work.
pub(crate) fn overdue(policy: &Policy) -> Response<Body> {
    Problem::overdue().response(policy)
}

/// The inner service answered, and the store did not take the answer in time.
pub(crate) fn unsettled(policy: &Policy) -> Response<Body> {
    Problem::unsettled().response(policy)
}

/// For a service that passes requests on, and can prove that it did not send this one: the claim is released.
pub fn upstream_unreachable(policy: &Policy) -> Response<Body> {
    let mut response = Problem::upstream_unreachable().response(policy);
    response.extensions_mut().insert(NotSent);
    response
}

/// For a service that passes unguarded requests on, and got no answer.
pub fn upstream_failed(policy: &Policy) -> Response<Body> {
    Problem::upstream_failed().response(policy)
}

/// For a service that passes unguarded requests on, and got no answer in time.
pub fn upstream_timeout(policy: &Policy) -> Response<Body> {
    Problem::upstream_timeout().response(policy)
}

/// For a client of a server that holds too many answers which their clients do not read.
pub fn answer_not_sent(policy: &Policy) -> Response<Body> {
    Problem::answer_not_sent().response(policy)
}

/// For a request that two servers on its way could read differently; `why` is a whole sentence.
pub fn request_ambiguous(policy: &Policy, why: &str) -> Response<Body> {
    Problem::request_ambiguous(why).response(policy)
}

/// For a keyed request whose method is in lower case, such as `patch`, which many services take for PATCH; or whose
/// method is overridden by a header.
pub fn method_unclear(policy: &Policy) -> Response<Body> {
    Problem::method_unclear().response(policy)
}

/// For CONNECT, on a server that opens no tunnels.
pub fn method_not_allowed(policy: &Policy) -> Response<Body> {
    let mut response = Problem::method_not_allowed().response(policy);
    // RFC 9110 asks for the methods that are allowed: the service decides, so the list is empty.
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(""));
    response
}

/// A stored response as an HTTP response.
pub(crate) fn own(stored: &record::Response) -> Response<Body> {
    let (body, trailers) = match &stored.body {
        Kept::Bytes { body, trailers } => (body.clone(), trailers.clone()),
        Kept::No(_) | Kept::Sealed(_) => (Bytes::new(), None),
    };
    let mut response = Response::new(Body::kept(body, trailers));
    *response.status_mut() = stored.status;
    *response.headers_mut() = stored.headers.clone();
    response.extensions_mut().insert(OwnAnswer);
    response
}
