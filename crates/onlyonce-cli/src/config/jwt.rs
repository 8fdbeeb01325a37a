//! `[jwt]`: how bearer tokens are verified, for `principal = "jwt:CLAIM"`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use jsonwebtoken::{Algorithm, AlgorithmFamily};

use super::error::{Remark, Remarks};
use super::field::Field;
use super::names::JWT;

/// How bearer tokens are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtRule {
    /// What they are signed with.
    pub keys: JwtKeys,
    /// Who must have issued them; `None`: anybody who has a key.
    pub issuer: Option<String>,
    /// Whom they must be meant for; `None`: anybody.
    pub audience: Option<String>,
    /// How they may be signed.
    pub algorithms: Vec<Algorithm>,
}

/// What tokens are signed with.
#[derive(Clone, PartialEq, Eq)]
pub enum JwtKeys {
    /// A secret that the issuer and the gateway share.
    Secret(Vec<u8>),
    /// A file: a JWKS, or public keys as PEM.
    File(PathBuf),
    /// A JWKS at this address.
    Url(JwksUrl),
}

/// The secret is not shown.
impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(_) => f.write_str("Secret(..)"),
            Self::File(path) => write!(f, "File({path:?})"),
            Self::Url(url) => write!(f, "Url({url})"),
        }
    }
}

/// The address of a JWKS. It is shown without its query, which may be what lets the gateway in.
///
/// ```
/// use onlyonce_cli::config::JwksUrl;
///
/// let url: JwksUrl = "https://id.test/keys?code=secret".parse()?;
/// assert_eq!(url.to_string(), "https://id.test/keys");
/// assert_eq!(url.uri().query(), Some("code=secret"));
/// assert!("https://me:secret@id.test/keys".parse::<JwksUrl>().is_err());
/// # Ok::<(), onlyonce_cli::config::JwksUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JwksUrl(Uri);

impl JwksUrl {
    /// The whole address.
    pub fn uri(&self) -> &Uri {
        &self.0
    }
}

impl FromStr for JwksUrl {
    type Err = JwksUrlError;

    fn from_str(text: &str) -> Result<Self, JwksUrlError> {
        let uri: Uri = text.parse().map_err(|_| JwksUrlError::Address)?;
        match (uri.scheme_str(), uri.authority()) {
            (_, Some(authority)) if authority.as_str().contains('@') => {
                Err(JwksUrlError::Credentials)
            }
            (Some("http" | "https"), Some(_)) => Ok(Self(uri)),
            _ => Err(JwksUrlError::Address),
        }
    }
}

impl fmt::Display for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.scheme_str().unwrap_or_default();
        let authority = self.0.authority().map_or("", |authority| authority.as_str());
        write!(f, "{scheme}://{authority}{}", self.0.path())
    }
}

impl fmt::Debug for JwksUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwksUrl({self})")
    }
}

/// Why a text is no address of keys. Write it as the message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwksUrlError {
    /// Give a scheme and a host.
    #[error("it is no address; write https://, a host and a path")]
    Address,
    /// Take the part before the `@` away.
    #[error("an address of keys has no user and no password; remove what is before the @")]
    Credentials,
}

impl JwtRule {
    pub(super) fn read(field: Field<'_>) -> Result<Self, Remarks> {
        let mut draft = Draft::default();
        field.each(&JWT, |field| draft.set(field))?;
        let keys = draft.keys.ok_or_else(|| field.wrong("it needs `keys`"))?;
        let algorithms = draft.algorithms.unwrap_or_else(|| default_algorithms(&keys));
        let is_hmac = |algorithm: &Algorithm| algorithm.family() == AlgorithmFamily::Hmac;
        let is_secret = matches!(keys, JwtKeys::Secret(_));
        if algorithms.iter().any(|algorithm| is_hmac(algorithm) != is_secret) {
            return Err(field.wrong(MIXED).into());
        }
        Ok(Self { keys, issuer: draft.issuer, audience: draft.audience, algorithms })
    }

    /// What is allowed, and probably not meant.
    pub(super) fn odd(&self, field: Field<'_>) -> Option<Remark> {
        let JwtKeys::Url(url) = &self.keys else { return None };
        let uri = url.uri();
        let is_local = uri.host().is_some_and(|host| LOCAL.contains(&host));
        (uri.scheme_str() == Some("http") && !is_local).then(|| field.wrong(UNSAFE))
    }
}

#[derive(Default)]
struct Draft {
    keys: Option<JwtKeys>,
    issuer: Option<String>,
    audience: Option<String>,
    algorithms: Option<Vec<Algorithm>>,
}

impl Draft {
    fn set(&mut self, field: Field<'_>) -> Result<(), Remarks> {
        match field.name.name {
            "keys" => self.keys = Some(keys(field)?),
            "issuer" => self.issuer = said(field)?,
            "audience" => self.audience = said(field)?,
            _ => self.algorithms = Some(algorithms(field)?),
        }
        Ok(())
    }
}

/// A text that is not empty.
fn said(field: Field<'_>) -> Result<Option<String>, Remark> {
    Ok(Some(field.text()?).filter(|text| !text.is_empty()).map(str::to_owned))
}

fn keys(field: Field<'_>) -> Result<JwtKeys, Remark> {
    let text = field.text()?;
    match text {
        "" => Err(field.refused()),
        _ if text.starts_with("env:") => Ok(JwtKeys::Secret(field.confidential()?.into_bytes())),
        _ if text.starts_with("https://") || text.starts_with("http://") => {
            field.parsed().map(JwtKeys::Url)
        }
        _ => Ok(JwtKeys::File(text.into())),
    }
}

fn algorithms(field: Field<'_>) -> Result<Vec<Algorithm>, Remarks> {
    let algorithms = field.all(|field| field.one_of(&ALGORITHMS))?;
    match algorithms.is_empty() {
        true => Err(field.wrong("the list is empty: no token would be taken").into()),
        false => Ok(algorithms),
    }
}

fn default_algorithms(keys: &JwtKeys) -> Vec<Algorithm> {
    match keys {
        JwtKeys::Secret(_) => vec![Algorithm::HS256],
        JwtKeys::File(_) | JwtKeys::Url(_) => {
            vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]
        }
    }
}

const ALGORITHMS: [(&str, Algorithm); 12] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
    ("HS256", Algorithm::HS256),
    ("HS384", Algorithm::HS384),
    ("HS512", Algorithm::HS512),
];
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
const UNSAFE: &str = "`keys` are fetched over http://: whoever is on the way can give keys of their own, and pass for every \
                      caller; use https://";
const MIXED: &str = "HS256, HS384 and HS512 go with a secret (keys = \"env:NAME\"), and with nothing else: whoever knows a public \
                     key could sign tokens with it";
