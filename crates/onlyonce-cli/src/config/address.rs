//! Where the upstream is.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use http::uri::Authority;

/// The service behind the gateway: a scheme and an authority, and no path.
///
/// ```
/// use onlyonce_cli::config::Upstream;
///
/// let upstream: Upstream = "h2c://127.0.0.1:9000".parse()?;
/// assert_eq!((upstream.scheme(), upstream.authority().as_str()), ("h2c", "127.0.0.1:9000"));
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

    /// The whole address, with the path `/`.
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let uri: Uri = text.parse().map_err(|_| UpstreamError::Address)?;
        match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "h2c" | "https"), Some(authority)) => check(&uri, authority)?,
            _ => return Err(UpstreamError::Address),
        }
        Ok(Self(uri))
    }
}

fn check(uri: &Uri, authority: &Authority) -> Result<(), UpstreamError> {
    match uri.path_and_query().map_or("/", |path| path.as_str()) {
        _ if authority.host().is_empty() => Err(UpstreamError::Address),
        _ if authority.as_str().contains('@') => Err(UpstreamError::Credentials),
        "/" => Ok(()),
        _ => Err(UpstreamError::Path),
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority())
    }
}

/// Why a text is no address of an upstream. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Give a scheme and a host.
    #[error("an upstream is http://HOST:PORT, h2c://HOST:PORT or https://HOST:PORT")]
    Address,
    /// Take the path away.
    #[error("an upstream has no path, because requests keep their own")]
    Path,
    /// Take the part before the `@` away.
    #[error("an upstream has no credentials, because requests keep their own")]
    Credentials,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_a_scheme_and_an_authority() {
        for text in ["http://127.0.0.1:9000", "h2c://[::1]:50051", "https://api.internal"] {
            assert_eq!(text.parse::<Upstream>().unwrap().to_string(), text);
        }
        assert!("http://api/".parse::<Upstream>().is_ok());
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
            ("http://host/api", UpstreamError::Path),
            ("http://host?x", UpstreamError::Path),
            ("http://me:pw@host", UpstreamError::Credentials),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Upstream>(), Err(error), "{text}");
        }
    }
}
