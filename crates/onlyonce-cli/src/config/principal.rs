//! How the gateway tells who asks.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;

use super::error::Remarks;
use super::field::Field;

/// How the gateway tells who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrincipalRule {
    /// All credentials that are the same in each retry, together; nobody where there is none. What only looks like a
    /// credential is refused.
    Auto,
    /// The first of these that is present.
    Sources(Vec<PrincipalSource>),
    /// Nobody in particular: all callers share their keys.
    None,
}

impl PrincipalRule {
    /// Whether bearer tokens must be verified for it.
    pub fn needs_jwt(&self) -> bool {
        let is_jwt = |source: &PrincipalSource| matches!(source, PrincipalSource::Jwt(_));
        matches!(self, Self::Sources(sources) if sources.iter().any(is_jwt))
    }

    /// Whether clients must present certificates for it.
    pub fn needs_mtls(&self) -> bool {
        let is_mtls = |source: &PrincipalSource| {
            matches!(source, PrincipalSource::Certificate | PrincipalSource::CertificateKey)
        };
        matches!(self, Self::Sources(sources) if sources.iter().any(is_mtls))
    }

    pub(super) fn read(field: Field<'_>) -> Result<Self, Remarks> {
        if field.is_list() {
            let sources: Vec<_> = field.all(Field::parsed)?;
            return match sources.is_empty() {
                true => Err(field
                    .wrong("the list is empty; write \"none\" if all callers may share their keys")
                    .into()),
                false => Ok(Self::Sources(sources)),
            };
        }
        match field.text()? {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => Ok(Self::Sources(vec![field.parsed()?])),
        }
    }
}

/// Where a caller's identity is found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrincipalSource {
    /// A header field, `header:X-Account`.
    Header(HeaderName),
    /// A cookie, `cookie:session`.
    Cookie(String),
    /// Claims of a bearer token that is verified by `[jwt]`: `jwt:sub`, `jwt:tenant,sub`.
    Jwt(Vec<String>),
    /// Issuer and subject of the client's certificate, `mtls`.
    Certificate,
    /// The public key of the client's certificate, `mtls:spki`.
    CertificateKey,
}

impl FromStr for PrincipalSource {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        match text.split_once(':') {
            None if text == "mtls" => Ok(Self::Certificate),
            Some(("mtls", "spki")) => Ok(Self::CertificateKey),
            Some(("header", name)) => {
                let header = name.parse().map_err(|_| PrincipalError::HeaderName)?;
                Ok(Self::Header(header))
            }
            Some(("cookie", name)) if is_cookie_name(name) => Ok(Self::Cookie(name.into())),
            Some(("cookie", _)) => Err(PrincipalError::CookieName),
            Some(("jwt", claims)) => {
                let claims: Vec<_> = claims.split(',').map(str::to_owned).collect();
                let is_empty = claims.iter().any(String::is_empty);
                if is_empty { Err(PrincipalError::Claim) } else { Ok(Self::Jwt(claims)) }
            }
            _ => Err(PrincipalError::Place),
        }
    }
}

/// A cookie's name is a token (RFC 6265, section 4.1.1), and so is a header field's.
fn is_cookie_name(name: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok()
}

impl fmt::Display for PrincipalSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Jwt(claims) => write!(f, "jwt:{}", claims.join(",")),
            Self::Certificate => f.write_str("mtls"),
            Self::CertificateKey => f.write_str("mtls:spki"),
        }
    }
}

/// Why a text does not say who asks. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrincipalError {
    /// Begin with one of the known places.
    #[error(
        "who asks is \"auto\", \"none\", header:NAME, cookie:NAME, jwt:CLAIM, mtls, mtls:spki or a list, such as [\"jwt:sub\", \"header:X-Account\"]"
    )]
    Place,
    /// Give a name that HTTP allows for a header field.
    #[error("after `header:` comes the name of a header field")]
    HeaderName,
    /// Give a name that HTTP allows for a cookie.
    #[error("after `cookie:` comes the name of a cookie")]
    CookieName,
    /// Name the claims, with commas between.
    #[error("after `jwt:` comes a claim, such as jwt:sub, or several: jwt:tenant,sub")]
    Claim,
}
