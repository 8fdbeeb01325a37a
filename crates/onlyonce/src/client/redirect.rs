//! Redirects: followed within the origin only, and with the key only where the operation itself moved. A redirect is
//! not followed after an attempt that may have been executed: at another URL the same key is another operation.

use http::header::LOCATION;
use http::{StatusCode, Uri};

use super::answer::Answer;
use super::decide::{Course, End};
use super::outcome::{Doubt, Stop};

/// Where an answer points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// 307, 308: send the operation there, with the same key and body.
    Moved(Uri),
    /// 303: the operation happened; read its result there, without the key.
    SeeOther(Uri),
    /// 307, 308 to another origin: not followed, because that origin would get key, body and credentials.
    Elsewhere,
    /// Every other 3xx. Some services redirect to a login page and did nothing; others have executed the
    /// request and redirect to its result. The answer does not say which.
    Unclear,
}

/// The redirect in an answer, if it is one.
pub(crate) fn read(answer: &Answer, from: &Uri) -> Option<Redirect> {
    if !answer.status.is_redirection() {
        return None;
    }
    let location = answer.header(&LOCATION);
    let to = location.and_then(|location| resolve(from, location));
    Some(match (answer.status, to) {
        (StatusCode::SEE_OTHER, Some(to)) => Redirect::SeeOther(to),
        (StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT, Some(to)) => {
            Redirect::Moved(to)
        }
        (StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT, None)
            if location.is_some() =>
        {
            Redirect::Elsewhere
        }
        _ => Redirect::Unclear,
    })
}

/// How an operation ends whose redirect is not followed; `None` if it is followed.
pub(crate) fn unfollowed(redirect: &Redirect, is_replay: bool, course: &Course) -> Option<End> {
    let is_followed = matches!(redirect, Redirect::Moved(_) | Redirect::SeeOther(_));
    match (course.done, course.doubt) {
        // The result of a 303 may be read anywhere within the origin.
        (Some(_), _) if is_followed => None,
        (Some(status), _) => Some(End::Done(status)),
        // A redirect from the server's record is about every attempt.
        (None, Some(doubt)) if !is_replay => Some(End::Unknown(doubt, Stop::NotFollowed)),
        _ => match redirect {
            Redirect::Moved(_) | Redirect::SeeOther(_) => None,
            Redirect::Elsewhere => Some(End::Rejected),
            Redirect::Unclear => Some(End::Unknown(Doubt::Redirected, Stop::NotFollowed)),
        },
    }
}

/// `location` as seen from `from`, if it is of the same origin.
fn resolve(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.starts_with("//") {
        let scheme = from.scheme_str()?;
        return same_origin(from, format!("{scheme}:{location}").parse().ok()?);
    }
    if location.starts_with('/') {
        return with_path(from, location);
    }
    match location.parse::<Uri>() {
        Ok(to) if to.scheme().is_some() => same_origin(from, to),
        _ if location.contains(':') => None,
        _ => with_path(from, &beside(from.path(), location)),
    }
}

fn same_origin(from: &Uri, to: Uri) -> Option<Uri> {
    (origin(from) == origin(&to)).then_some(to)
}

/// Scheme, host and port, the usual port filled in.
pub(crate) fn origin(uri: &Uri) -> Option<(String, String, u16)> {
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let usual = if scheme == "https" { 443 } else { 80 };
    Some((scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual)))
}

/// Another path of the same origin.
pub(crate) fn with_path(from: &Uri, path: &str) -> Option<Uri> {
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// A relative path beside `path`, or the same one with another query.
fn beside(path: &str, relative: &str) -> String {
    match relative.starts_with('?') || relative.is_empty() {
        true => format!("{path}{relative}"),
        false => format!("{}/{relative}", path.rsplit_once('/').map_or("", |(folder, _)| folder)),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::clock::StoreTime;

    fn redirect(status: u16, location: &'static str) -> Option<Redirect> {
        let mut answer = Answer::new(StatusCode::from_u16(status).unwrap());
        answer.headers.insert(LOCATION, HeaderValue::from_static(location));
        read(&answer, &Uri::from_static("http://Shop.test:80/v1/charges?a=1"))
    }

    fn uri(text: &'static str) -> Uri {
        Uri::from_static(text)
    }

    // R160
    #[test]
    fn key_and_body_move_within_the_origin() {
        let moved = |location| redirect(307, location);
        assert_eq!(moved("/v2?b=2"), Some(Redirect::Moved(uri("http://Shop.test:80/v2?b=2"))));
        assert_eq!(moved("http://shop.test/v2"), Some(Redirect::Moved(uri("http://shop.test/v2"))));
        assert_eq!(moved("//shop.test/v2#x"), Some(Redirect::Moved(uri("http://shop.test/v2"))));
        assert_eq!(moved("other"), Some(Redirect::Moved(uri("http://Shop.test:80/v1/other"))));
        assert_eq!(redirect(308, "/v2"), Some(Redirect::Moved(uri("http://Shop.test:80/v2"))));
    }

    // R160
    #[test]
    fn another_origin_is_not_followed() {
        for location in [
            "https://shop.test/v2",
            "http://shop.test:8080/v2",
            "http://shop.test.evil/v2",
            "//evil.test/v2",
            "ftp://shop.test/v2",
            "javascript:alert(1)",
            "http://user@evil.test/",
        ] {
            assert_eq!(redirect(307, location), Some(Redirect::Elsewhere), "{location}");
            assert_eq!(redirect(303, location), Some(Redirect::Unclear), "{location}");
        }
    }

    // R160
    #[test]
    fn see_other_is_read_and_301_and_302_do_not_say_what_happened() {
        let see = Some(Redirect::SeeOther(uri("http://Shop.test:80/v1/charges/7")));
        assert_eq!(redirect(303, "charges/7"), see);
        assert_eq!(redirect(301, "/v2"), Some(Redirect::Unclear));
        assert_eq!(redirect(302, "/v2"), Some(Redirect::Unclear));
        assert_eq!(redirect(200, "/v2"), None);
    }

    // R160; threat K6
    #[test]
    fn in_doubt_only_a_redirect_on_record_is_followed() {
        let start = Course::new(StoreTime::from_ms(0), std::time::Duration::ZERO);
        let in_doubt = Course { doubt: Some(Doubt::NoAnswer), ..start };
        let unknown = Some(End::Unknown(Doubt::NoAnswer, Stop::NotFollowed));
        let moved = Redirect::Moved(uri("http://shop.test/v2"));
        let see = Redirect::SeeOther(uri("http://shop.test/v2"));
        for redirect in [&moved, &see, &Redirect::Elsewhere, &Redirect::Unclear] {
            assert_eq!(unfollowed(redirect, false, &in_doubt), unknown, "{redirect:?}");
        }
        for redirect in [&moved, &see] {
            assert_eq!(unfollowed(redirect, true, &in_doubt), None);
            assert_eq!(unfollowed(redirect, false, &start), None);
        }
        assert_eq!(unfollowed(&Redirect::Elsewhere, false, &start), Some(End::Rejected));
        // What happened stays done, wherever its result is said to be.
        let done = Course { done: Some(StatusCode::SEE_OTHER), ..in_doubt };
        assert_eq!(unfollowed(&moved, false, &done), None);
        let end = Some(End::Done(StatusCode::SEE_OTHER));
        assert_eq!(unfollowed(&Redirect::Unclear, false, &done), end);
    }
}
