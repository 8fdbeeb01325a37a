//! Finds what would make the upstream read another request than the one that the gateway judged.

use http::Uri;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;
use onlyonce::fingerprint::is_one_name;
use onlyonce::key::KeySource;
use onlyonce::policy::IDEMPOTENCY_KEY;
use onlyonce::scope::ScopePart;

use super::headers::named_by_connection;
use super::wire::is_plain_length;
use crate::config::{PrincipalRule, PrincipalSource, Route};
use crate::credentials::{Role, role};

/// Why the request is ambiguous, as a sentence for its client.
pub(super) fn doubt(
    uri: &Uri,
    headers: &HeaderMap,
    judged: &Judged,
    is_guarded: bool,
) -> Option<&'static str> {
    let (mut host, mut has_two_hosts, mut has_connection) = (None, false, false);
    let (mut length, mut has_underscore) = (Length::None, false);
    // One pass over a dozen fields is cheaper than two look-ups.
    for (name, value) in headers {
        if name == header::HOST {
            has_two_hosts |= host.replace(value).is_some();
        }
        has_connection |= name == header::CONNECTION;
        has_underscore |= name.as_str().contains('_');
        if name == header::CONTENT_LENGTH {
            length = length.and(value);
        }
    }
    match () {
        () if has_two_hosts => Some(TWO_HOSTS),
        () if length == Length::Odd => Some(ODD_LENGTH),
        () if !is_one_host(uri, host) => Some(OTHER_HOST),
        () if uri.path().is_empty() => Some(NO_PATH),
        () if has_connection && judged.is_dropped(headers) => Some(DROPPED),
        () if is_guarded && has_underscore && judged.is_respelled(headers) => Some(UNDERSCORE),
        () => None,
    }
}

/// The same, of its length alone: no two servers agree on where such a request ends, whatever a route asks of it. Over
/// HTTP/1.1 it was refused before its head was read.
pub(super) fn length_doubt(headers: &HeaderMap) -> Option<&'static str> {
    let lengths = headers.get_all(header::CONTENT_LENGTH);
    let length = lengths.iter().fold(Length::None, Length::and);
    (length == Length::Odd).then_some(ODD_LENGTH)
}

/// What the `Content-Length` fields of a request say.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Length {
    None,
    Plain,
    /// There are several, or it is not one plain number.
    Odd,
}

impl Length {
    fn and(self, value: &HeaderValue) -> Self {
        match self {
            Self::None if is_plain_length(value.as_bytes()) => Self::Plain,
            _ => Self::Odd,
        }
    }
}

/// The fields that a route judges a request by.
#[derive(Debug)]
pub(super) struct Judged(Vec<HeaderName>);

impl Judged {
    pub(super) fn by(route: &Route) -> Self {
        let keys = route.policy.key_from().iter().filter_map(|source| match source {
            KeySource::Header(name) => Some(name.clone()),
            _ => None,
        });
        let callers = match &route.principal {
            PrincipalRule::Sources(sources) => sources.as_slice(),
            PrincipalRule::Auto | PrincipalRule::None => &[],
        };
        let callers = callers.iter().filter_map(|source| match source {
            PrincipalSource::Header(name) => Some(name.clone()),
            PrincipalSource::Cookie(_) | PrincipalSource::Jwt(_) => None,
            PrincipalSource::Certificate | PrincipalSource::CertificateKey => None,
        });
        let scope = route.policy.scope().iter().filter_map(|part| match part {
            ScopePart::Header(name) => Some(name.clone()),
            _ => None,
        });
        Self(scope.chain(keys).chain(callers).chain(ALWAYS).collect())
    }

    /// Whether `Connection` names one of them, or a credential: a field that it names ends at this hop.
    fn is_dropped(&self, headers: &HeaderMap) -> bool {
        let is_judged = |name: &HeaderName| self.0.contains(name) || role(name) != Role::Nothing;
        named_by_connection(headers).any(|name| is_judged(&name))
    }
}

impl Judged {
    /// Whether a field has the name of one of them, or of a credential, but for `_` in the place of `-`: for CGI and WSGI
    /// these are one name.
    fn is_respelled(&self, headers: &HeaderMap) -> bool {
        let names = headers.keys().filter(|name| !self.0.contains(name));
        let is_one = |name: &HeaderName| {
            let is_judged = self.0.iter().any(|judged| is_one_name(judged.as_str(), name.as_str()));
            is_judged || is_respelled_credential(name)
        };
        names.into_iter().any(is_one)
    }
}

fn is_respelled_credential(name: &HeaderName) -> bool {
    if !name.as_str().contains('_') {
        return false;
    }
    let dashed = HeaderName::try_from(name.as_str().replace('_', "-"));
    dashed.is_ok_and(|name| matches!(role(&name), Role::Credential(_) | Role::Cookies))
}

/// Whether the target and `Host` name one host, and nothing else. An origin-form target names none.
fn is_one_host(uri: &Uri, host: Option<&HeaderValue>) -> bool {
    let host = host.filter(|host| !host.is_empty());
    if uri.authority().is_none() && host.is_none_or(is_plain_name) {
        return true;
    }
    let host = host.map(|host| Authority::try_from(host.as_bytes())).transpose();
    let Ok(host) = host else { return false };
    let hosts = [uri.authority(), host.as_ref()];
    let has_user = hosts.iter().flatten().any(|host| host.as_str().contains('@'));
    match hosts {
        _ if has_user => false,
        [Some(target), Some(host)] => named(host) == named(target),
        _ => true,
    }
}

/// Whether a `Host` is a name without a port, which needs no parser: most are.
fn is_plain_name(host: &HeaderValue) -> bool {
    host.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

/// The name in lower case, and the port unless it is the usual one.
fn named(authority: &Authority) -> (String, Option<u16>) {
    let port = authority.port_u16().filter(|port| !matches!(port, 80 | 443));
    (authority.host().to_ascii_lowercase(), port)
}

/// What every route judges by, besides credentials: the scope, the key, the fingerprint.
const ALWAYS: [HeaderName; 7] = [
    header::HOST,
    IDEMPOTENCY_KEY,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-http-method"),
    HeaderName::from_static("x-method-override"),
];
const UNDERSCORE: &str = "A header has an underscore where the name of a header that identifies the request (its key, credentials, \
                          content type or method) has a dash. Some servers take them for one header. Write it with a dash.";
const TWO_HOSTS: &str = "The request has more than one Host field. Send one.";
const ODD_LENGTH: &str =
    "The Content-Length is not one plain decimal number. Send it once, without zeros before it.";
const OTHER_HOST: &str =
    "The Host field is malformed, or the target of the request names another host.";
const NO_PATH: &str = "The target of the request has no path.";
const DROPPED: &str = "The Connection field names a header that identifies the request (its host, key, credentials \
                       or content type), so that the service would not see it. Remove it from Connection.";

#[cfg(test)]
mod tests {
    use super::*;

    fn doubted(lines: &[(&'static str, &'static str)], is_guarded: bool) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let judged = Judged(ALWAYS.to_vec());
        doubt(&Uri::from_static("/t"), &headers, &judged, is_guarded)
    }

    // threat G2
    #[test]
    fn two_lengths_are_ambiguous_even_if_they_are_equal() {
        let length = ("content-length", "2");
        assert_eq!(doubted(&[length], true), None);
        assert_eq!(doubted(&[length, length], true), Some(ODD_LENGTH));
        assert_eq!(doubted(&[length, length], false), Some(ODD_LENGTH));
        assert_eq!(doubted(&[("content-length", "02")], false), Some(ODD_LENGTH));
    }

    #[test]
    fn an_underscore_in_the_place_of_a_dash_is_ambiguous_where_keys_count() {
        for name in ["idempotency_key", "content_type", "x_http-method_override"] {
            assert_eq!(doubted(&[(name, "a")], true), Some(UNDERSCORE), "{name}");
            assert_eq!(doubted(&[(name, "a")], false), None);
        }
        assert_eq!(doubted(&[("idempotency-key", "a"), ("x_trace", "b")], true), None);
    }
}
