//! Where the upstream is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;

/// The service behind the gateway: a scheme, an authority, and a path prefix where it has one.
///
/// ```
/// use onlyonce_cli::config::Upstream;
///
/// let upstream: Upstream = "h2c://127.0.0.1:9000/api/".parse()?;
/// assert_eq!((upstream.scheme(), upstream.authority().as_str()), ("h2c", "127.0.0.1:9000"));
/// assert_eq!(upstream.prefix(), "/api");
/// # Ok::<(), onlyonce_cli::config::UpstreamError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream(Uri);

impl Upstream {
    /// `http`, `h2c` or `https`.
    pub fn scheme(&self) -> &str {
        self.0.scheme_str().expect("one without a scheme is not parsed")
    }

    /// Its host, and its port if it says one.
    pub fn authority(&self) -> &Authority {
        self.0.authority().expect("one without an authority is not parsed")
    }

    /// Whether it is this listener of this machine, so far as its text tells: a name other than `localhost` is not resolved.
    pub(super) fn is_at(&self, listen: SocketAddr) -> bool {
        let usual = if self.scheme() == "https" { 443 } else { 80 };
        let port = self.authority().port_u16().unwrap_or(usual);
        let host = self.authority().host().trim_start_matches('[').trim_end_matches(']');
        let addresses: &[IpAddr] = match host.parse() {
            Ok(address) => &[address],
            Err(_) if host.eq_ignore_ascii_case("localhost") => &LOCALHOST,
            Err(_) => &[],
        };
        let listens = listen.ip().to_canonical();
        let is_same = |address: &IpAddr| match address.to_canonical() {
            address if address == listens => true,
            // Whoever connects to 0.0.0.0 reaches this machine.
            address if address.is_unspecified() => {
                listens.is_loopback() || listens.is_unspecified()
            }
            address => listens.is_unspecified() && is_own(address),
        };
        port == listen.port() && addresses.iter().any(is_same)
    }

    /// What goes before the path of every request: empty, or a path without a slash at its end.
    pub fn prefix(&self) -> &str {
        self.0.path().trim_end_matches('/')
    }

    /// The whole address, as it was given.
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

/// Whether this machine has the address: nobody else can bind it.
fn is_own(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        // A `Uri` drops its fragment without a word.
        if text.contains(['?', '#']) {
            return Err(UpstreamError::Query);
        }
        let uri: Uri = text.parse().map_err(|_| UpstreamError::Address)?;
        match (uri.scheme_str(), uri.authority()) {
            (_, Some(authority)) if authority.host().is_empty() => Err(UpstreamError::Address),
            (_, Some(authority)) if authority.as_str().contains('@') => {
                Err(UpstreamError::Credentials)
            }
            (Some("http" | "h2c" | "https"), Some(_)) => Ok(Self(uri)),
            _ => Err(UpstreamError::Address),
        }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.prefix())
    }
}

/// Why a text is no address of an upstream. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Give a scheme and a host.
    #[error(
        "an upstream is http://HOST:PORT, h2c://HOST:PORT or https://HOST:PORT, and may have a path"
    )]
    Address,
    /// Take what follows the `?` or the `#` away.
    #[error("an upstream has no query and no fragment, because requests keep their own")]
    Query,
    /// Take the part before the `@` away.
    #[error("an upstream has no credentials, because requests keep their own")]
    Credentials,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_scheme_an_authority_and_a_prefix() {
        for text in [
            "http://127.0.0.1:9000",
            "h2c://[::1]:50051",
            "https://api.internal",
            "http://127.0.0.1:9000/api",
            "https://api.internal/v1/a%2Fb",
        ] {
            assert_eq!(text.parse::<Upstream>().unwrap().to_string(), text);
        }
        for (text, prefix) in [("http://api/", ""), ("http://api/v1/", "/v1"), ("http://a//", "")] {
            assert_eq!(text.parse::<Upstream>().unwrap().prefix(), prefix, "{text}");
        }
    }

    #[test]
    fn what_is_no_upstream_is_refused() {
        let cases = [
            ("", UpstreamError::Address),
            ("127.0.0.1:9000", UpstreamError::Address),
            ("localhost", UpstreamError::Address),
            ("ftp://host", UpstreamError::Address),
            ("http://", UpstreamError::Address),
            ("http://:80", UpstreamError::Address),
            ("http://host?x", UpstreamError::Query),
            ("http://host/api?x", UpstreamError::Query),
            ("http://host/api#x", UpstreamError::Query),
            ("http://me:pw@host", UpstreamError::Credentials),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Upstream>(), Err(error), "{text}");
        }
    }
}
