//! Repeatable Requests of OASIS, version 1.0, on a route that takes its keys from `Repeatability-Request-ID`.
//!
//! 1. The request's id and `Repeatability-First-Sent` come together, each once; the latter is a date. Else 400.
//! 2. A free key that was first sent longer than `ttl` ago is refused with 412: it may have been executed, and forgotten.
//! 3. Every answer says by `Repeatability-Result` whether the request was taken, now or before, or refused. What still runs and
//!    what has an unknown outcome was taken.
//! 4. An unsafe method that the route does not guard is refused with 501: it would run with each repetition.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response};

use super::{Body, key_age};
use crate::key::KeySource;
use crate::policy::{Mode, Policy};
use crate::problem::Problem;

/// What these rules make of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// The request does not ask to be repeatable.
    Other,
    Repeatable,
    Refused(Problem),
}

pub(super) fn judge(policy: &Policy, method: &Method, headers: &HeaderMap) -> Judged {
    let has = |name: &HeaderName| headers.contains_key(name);
    let is_asked = (has(&REQUEST_ID) || has(&key_age::FIRST_SENT)) && !method.is_safe();
    if !is_asked || !is_spoken(policy) || policy.mode() == Mode::Observe {
        return Judged::Other;
    }
    let is_once = |name: HeaderName| headers.get_all(name).iter().count() == 1;
    let is_dated = || key_age::first_sent(headers).is_some();
    match is_once(REQUEST_ID) && is_once(key_age::FIRST_SENT) && is_dated() {
        _ if !policy.methods().contains(method) => {
            Judged::Refused(Problem::repeatability_unsupported())
        }
        true => Judged::Repeatable,
        false => Judged::Refused(Problem::repeatability_invalid()),
    }
}

/// Whether the route takes its keys from `Repeatability-Request-ID`.
pub(super) fn is_spoken(policy: &Policy) -> bool {
    policy.key_from().contains(&KeySource::Header(REQUEST_ID))
}

/// The answer to a repeatable request.
pub(super) fn with_result(mut answer: Response<Body>) -> Response<Body> {
    let is_refused = answer.extensions().get::<Refused>().is_some();
    let result = if is_refused { "rejected" } else { "accepted" };
    answer.headers_mut().insert(RESULT, HeaderValue::from_static(result));
    answer
}

/// Among the extensions of an answer of our own to a request that was not taken, now or before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused;

const REQUEST_ID: HeaderName = HeaderName::from_static("repeatability-request-id");
const RESULT: HeaderName = HeaderName::from_static("repeatability-result");

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn judged(method: &Method, lines: &[(HeaderName, &'static str)]) -> Judged {
        let policy = Policy::default().with_key_from([KeySource::Header(REQUEST_ID)]);
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        judge(&policy, method, &headers)
    }

    // R176
    #[test]
    fn both_headers_are_needed_and_a_date_that_is_one() {
        let (id, date) = ((REQUEST_ID, "1"), (key_age::FIRST_SENT, DATE));
        let invalid = || Judged::Refused(Problem::repeatability_invalid());
        assert_eq!(judged(&Method::POST, &[]), Judged::Other);
        assert_eq!(judged(&Method::POST, &[id.clone(), date.clone()]), Judged::Repeatable);
        let odd = (key_age::FIRST_SENT, "yesterday");
        for lines in [
            &[id.clone()][..],
            std::slice::from_ref(&date),
            &[id.clone(), odd],
            &[id.clone(), id.clone(), date.clone()],
            &[id.clone(), date.clone(), date.clone()],
        ] {
            assert_eq!(judged(&Method::POST, lines), invalid(), "{lines:?}");
        }
    }

    // R176
    #[test]
    fn an_unsafe_method_that_is_not_guarded_is_not_supported() {
        let lines = [(REQUEST_ID, "1"), (key_age::FIRST_SENT, DATE)];
        let unsupported = Judged::Refused(Problem::repeatability_unsupported());
        assert_eq!(judged(&Method::DELETE, &lines), unsupported);
        assert_eq!(judged(&Method::GET, &lines), Judged::Other);
    }

    #[test]
    fn a_route_with_other_keys_knows_nothing_of_them() {
        let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static("1"))]);
        assert_eq!(judge(&Policy::default(), &Method::POST, &headers), Judged::Other);
        let observing = Policy::default()
            .with_key_from([KeySource::Header(REQUEST_ID)])
            .with_mode(Mode::Observe);
        assert_eq!(judge(&observing, &Method::POST, &headers), Judged::Other);
    }
}
