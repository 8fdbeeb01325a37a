//! Headers that end at this hop, and those that tell the next one where a request came from.

use std::net::{IpAddr, SocketAddr};

use http::header::{self, Entry, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use onlyonce::policy::VIA;

/// Removes what belongs to one connection only: RFC 9110 section 7.6.1.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // RFC 8470 section 5.1: no proxy may remove Early-Data, whatever `Connection` names.
    let named = named_by_connection(headers).filter(|name| name.as_str() != "early-data");
    let named: Vec<HeaderName> = named.collect();
    // Looked for first: most heads have one of them or none.
    let found: Vec<HeaderName> =
        headers.keys().filter(|name| HOP_BY_HOP.contains(name)).cloned().collect();
    for name in named.iter().chain(&found) {
        headers.remove(name);
    }
}

/// The fields that `Connection` names.
pub(super) fn named_by_connection(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let lists = headers.get_all(header::CONNECTION).into_iter();
    let names = lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}

/// Makes one line of the cookies of an HTTP/2 request, which may come in crumbs: RFC 9113 section 8.2.3. Two
/// lines are two lists of cookies to HTTP/1.1, and most servers read only one of them.
pub(super) fn join_cookie_crumbs(headers: &mut HeaderMap) {
    let Entry::Occupied(mut crumbs) = headers.entry(header::COOKIE) else {
        return;
    };
    let lines: Vec<&[u8]> = crumbs.iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1 {
        let whole = HeaderValue::from_bytes(&lines.join(&b"; "[..]));
        crumbs.insert(whole.expect("header values joined by semicolons are one"));
    }
}

/// The address of a peer, as the two headers spell it: made once for a connection.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) ip: IpAddr,
    address: HeaderValue,
    /// RFC 7239: `for=` and the address.
    forwarded_for: String,
    /// `http` or `https`.
    scheme: &'static str,
}

impl Origin {
    pub(super) fn new(peer: SocketAddr, is_secured: bool) -> Self {
        let address = HeaderValue::try_from(peer.ip().to_string());
        Self {
            ip: peer.ip(),
            address: address.expect("an address is a header value"),
            forwarded_for: match peer {
                SocketAddr::V4(peer) => format!("for={}", peer.ip()),
                SocketAddr::V6(peer) => format!("for=\"[{}]\"", peer.ip()),
            },
            scheme: if is_secured { "https" } else { "http" },
        }
    }
}

/// Tells the upstream who asked, and through whom.
pub(super) fn add_forwarded(head: &mut Parts, origin: &Origin) {
    head.headers.reserve(FORWARDED_COUNT);
    let host = head.headers.get(header::HOST).cloned();
    append_to_list(&mut head.headers, X_FORWARDED_FOR, origin.address.clone());
    head.headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(origin.scheme));
    if let Some(host) = &host {
        head.headers.entry(X_FORWARDED_HOST).or_insert_with(|| host.clone());
    }
    append_to_list(&mut head.headers, header::FORWARDED, forwarded(origin, host.as_ref()));
    append_to_list(&mut head.headers, header::VIA, VIA);
}

/// RFC 7239.
fn forwarded(origin: &Origin, host: Option<&HeaderValue>) -> HeaderValue {
    let (by, scheme) = (&origin.forwarded_for, origin.scheme);
    let host = host.and_then(|host| host.to_str().ok()).filter(|host| !host.contains(['"', '\\']));
    let text = host.map_or_else(
        || format!("{by};proto={scheme}"),
        |host| format!("{by};host=\"{host}\";proto={scheme}"),
    );
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("for=unknown"))
}

fn append_to_list(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    let mut earlier = match headers.entry(name) {
        Entry::Occupied(earlier) => earlier,
        Entry::Vacant(none) => {
            none.insert(value);
            return;
        }
    };
    let mut list = Vec::new();
    for earlier in earlier.iter() {
        list.extend_from_slice(earlier.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(value.as_bytes());
    let list = HeaderValue::from_bytes(&list).expect("header values joined by commas are one");
    earlier.insert(list);
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// How many headers tell the upstream where a request came from.
const FORWARDED_COUNT: usize = 5;
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

#[cfg(test)]
mod tests {
    use super::*;

    // R188
    #[test]
    fn early_data_goes_on_whatever_connection_names() {
        let fields = [("connection", "early-data, x-mine"), ("early-data", "1"), ("x-mine", "a")];
        let fields = fields
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut headers = HeaderMap::from_iter(fields);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["early-data"]);
    }
}
