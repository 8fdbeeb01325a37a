//! The origins whose pages may read the gateway's own answers.

use std::fmt;
use std::str::FromStr;

use http::{HeaderValue, Uri};

/// One origin, or any of them.
///
/// ```
/// use onlyonce_cli::config::CorsOrigin;
///
/// let shop: CorsOrigin = "https://shop.example".parse()?;
/// assert!("https://shop.example/cart".parse::<CorsOrigin>().is_err());
/// # Ok::<(), onlyonce_cli::config::CorsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorsOrigin {
    /// Every page, but without the caller's credentials.
    Any,
    /// This one, as a browser writes it in `Origin`.
    One(HeaderValue),
}

/// As it is written in a configuration.
impl fmt::Display for CorsOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::One(origin) => f.write_str(origin.to_str().unwrap_or_default()),
        }
    }
}

impl FromStr for CorsOrigin {
    type Err = CorsError;

    /// Browsers send origins in lower case, without a path and without the port that the scheme has anyway.
    fn from_str(text: &str) -> Result<Self, CorsError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let uri: Uri = text.parse().map_err(|_| CorsError)?;
        let authority = uri.authority().ok_or(CorsError)?.as_str().to_ascii_lowercase();
        let (scheme, usual_port) = match uri.scheme_str() {
            Some("http") => ("http", ":80"),
            Some("https") => ("https", ":443"),
            _ => return Err(CorsError),
        };
        let host = authority.strip_suffix(usual_port).unwrap_or(&authority);
        let has_path =
            !matches!(text.split("://").nth(1), Some(rest) if !rest.contains(['/', '?', '@', '*']));
        let value = HeaderValue::try_from(format!("{scheme}://{host}"));
        match value {
            Ok(value) if !has_path => Ok(Self::One(value)),
            _ => Err(CorsError),
        }
    }
}

/// The text is no origin. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an origin is http://HOST or https://HOST, with a port if it has one and without a path; or \"*\""
)]
pub struct CorsError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_a_browser_writes_it() {
        for (text, origin) in [
            ("https://shop.test", "https://shop.test"),
            ("https://Shop.Test:443", "https://shop.test"),
            ("http://localhost:5173", "http://localhost:5173"),
        ] {
            let expected = CorsOrigin::One(HeaderValue::from_static(origin));
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        assert_eq!("*".parse(), Ok(CorsOrigin::Any));
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in
            ["", "shop.test", "null", "https://shop.test/", "ftp://a", "https://*.shop.test"]
        {
            let read = text.parse::<CorsOrigin>();
            assert!(read.is_err(), "{text}: {read:?}");
        }
    }
}
