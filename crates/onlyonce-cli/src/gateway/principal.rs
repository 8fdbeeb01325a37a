//! Identifies the caller from the head of a request.
//!
//! 1. An empty credential is no credential.
//! 2. A credential that comes twice is unclear: the upstream may read the other one.
//! 3. Sources are tried in order and never joined.

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use onlyonce::http::Who;
use onlyonce::planted::{Planted, planted};
use onlyonce::scope::Principal;

use super::forward::Client;
use super::jwt::Jwt;
use crate::config::{Anonymous, PrincipalRule, PrincipalSource, TrustedPeers, is_proof};
use crate::tls::ClientCertificate;

/// The caller, by the route's rule.
pub(super) fn identify(
    rule: &PrincipalRule,
    peers: &TrustedPeers,
    anonymous: Anonymous,
    jwt: Option<&Jwt>,
    head: &Parts,
) -> Who {
    let found = match rule {
        PrincipalRule::None => return Principal::anonymous().into(),
        PrincipalRule::Auto => automatic(&head.headers),
        PrincipalRule::Sources(sources) => {
            let is_trusted = || is_trusted(peers, head);
            first_present(sources, jwt, head, is_trusted)
        }
    };
    match (found, anonymous) {
        (Ok(Some(principal)), _) => principal.into(),
        (Ok(None), Anonymous::Allow) if is_misread(rule, &head.headers) => {
            Who::Unclear(NO_BEARER.to_owned())
        }
        (Ok(None), Anonymous::Allow) => Principal::anonymous().into(),
        (Ok(None), Anonymous::Reject) => Who::Nobody,
        (Err(Unidentified::Unclear(why)), _) => Who::Unclear(why),
        (Err(Unidentified::Invalid(why)), _) => Who::Invalid(why),
    }
}

/// Whether the caller has an `Authorization` that nothing was made of, where bearer tokens are expected: the service may
/// know its caller by it, so that it is not the credential of nobody.
fn is_misread(rule: &PrincipalRule, headers: &HeaderMap) -> bool {
    let is_empty = |value| matches!(Authorization::read(value), Authorization::None);
    let value = only(headers, &header::AUTHORIZATION).ok().flatten();
    rule.needs_jwt() && value.is_some_and(|value| !is_empty(value))
}

/// The caller, nobody, or why the caller cannot be identified.
type Found = Result<Option<Principal>, Unidentified>;

/// Why a caller is not identified, as a sentence for its client.
#[derive(Debug)]
enum Unidentified {
    /// The credentials may be of several callers.
    Unclear(String),
    /// The credential is not genuine.
    Invalid(String),
}

impl From<String> for Unidentified {
    fn from(why: String) -> Self {
        Self::Unclear(why)
    }
}

/// An `Authorization` that is the same in every retry; else `X-Api-Key`, unless a cookie or a signature is
/// there too: an API key is often one for all users of an app. Guessing would either run a retry twice or
/// show one user another's answer.
fn automatic(headers: &HeaderMap) -> Found {
    let authorization = match only(headers, &header::AUTHORIZATION)? {
        Some(value) => Authorization::read(value),
        None => Authorization::None,
    };
    let has_cookie = || headers.get_all(header::COOKIE).iter().any(|line| !line.is_empty());
    match authorization {
        Authorization::Repeats(principal) => Ok(Some(principal)),
        Authorization::Signed => Err(SIGNED.to_owned().into()),
        Authorization::None if has_cookie() => Err(COOKIE.to_owned().into()),
        Authorization::None => {
            let key = only(headers, &X_API_KEY)?;
            Ok(key.map(|key| Principal::of("x-api-key", key)))
        }
    }
}

/// What an `Authorization` field says of its caller.
enum Authorization {
    None,
    /// The credential is the same in every retry.
    Repeats(Principal),
    /// The credential may differ in each retry.
    Signed,
}

impl Authorization {
    fn read(value: &[u8]) -> Self {
        let space = value.iter().position(u8::is_ascii_whitespace).unwrap_or(value.len());
        let (scheme, credential) = (&value[..space], value[space..].trim_ascii());
        let is_this = |known: &&&str| known.as_bytes().eq_ignore_ascii_case(scheme);
        match REPEATING.iter().find(is_this) {
            Some(_) if credential.is_empty() => Self::None,
            Some(scheme) => Self::Repeats(Principal::of(scheme, credential)),
            None => Self::Signed,
        }
    }
}

/// A header that only trusted peers may send is no reason to look further where another peer has sent it: the caller would
/// be another one than the service takes it for.
fn first_present(
    sources: &[PrincipalSource],
    jwt: Option<&Jwt>,
    head: &Parts,
    is_trusted: impl Fn() -> bool,
) -> Found {
    for source in sources {
        if let Some(principal) = from_source(source, jwt, head)? {
            return match source {
                PrincipalSource::Header(name) if !is_proof(name) && !is_trusted() => {
                    Err(Unidentified::Invalid(stranger(name)))
                }
                _ => Ok(Some(principal)),
            };
        }
    }
    Ok(None)
}

fn is_trusted(peers: &TrustedPeers, head: &Parts) -> bool {
    let peer = head.extensions.get::<Arc<Client>>().map(|client| client.origin.ip);
    peers.is_everybody() || peer.is_some_and(|peer| peers.trusts(peer))
}

fn from_source(source: &PrincipalSource, jwt: Option<&Jwt>, head: &Parts) -> Found {
    let headers = &head.headers;
    match source {
        PrincipalSource::Header(name) => {
            let value = only(headers, name)?;
            Ok(value.map(|value| Principal::of(name.as_str(), value)))
        }
        PrincipalSource::Cookie(name) => {
            let value = only_cookie(headers, name)?;
            Ok(value.map(|value| Principal::of(&format!("cookie {name}"), value)))
        }
        PrincipalSource::Jwt(claims) => {
            only(headers, &header::AUTHORIZATION)?;
            let jwt = jwt.ok_or_else(|| Unidentified::Invalid(NO_KEYS.to_owned()))?;
            jwt.caller(headers, claims).map_err(Unidentified::Invalid)
        }
        PrincipalSource::Certificate => match certificate(head) {
            Some(ClientCertificate { name: None, .. }) => Err(NO_SUBJECT.to_owned().into()),
            certificate => Ok(certificate.and_then(|certificate| certificate.name)),
        },
        PrincipalSource::CertificateKey => Ok(certificate(head).map(|certificate| certificate.key)),
    }
}

/// What the client of this connection has presented.
fn certificate(head: &Parts) -> Option<ClientCertificate> {
    head.extensions.get::<Arc<Client>>()?.certificate
}

/// The bearer token of the request.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes().trim_ascii();
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(BEARER) && token.first() == Some(&b' ');
    Some(token.trim_ascii()).filter(|token| is_bearer && !token.is_empty())
}

/// The one line of this field that is not empty.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, String> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    match lines.next() {
        Some(_) => Err(doubled(name.as_str())),
        None => {
            let value = Some(line.as_bytes().trim_ascii());
            Ok(value.filter(|value| !value.is_empty() || planted(Planted::EmptyPrincipalShared)))
        }
    }
}

/// The one cookie of this name, if it has a value.
fn only_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a [u8]>, String> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| cookie_value(pair.trim_ascii(), name));
    let value = values.next();
    match values.next() {
        Some(_) => Err(doubled(&format!("cookie {name}"))),
        None => Ok(value.filter(|value| !matches!(*value, b"" | b"\"\""))),
    }
}

fn cookie_value<'a>(pair: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let equals = memchr::memchr(b'=', pair)?;
    let (found, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
    (found == name.as_bytes()).then_some(value)
}

fn stranger(name: &HeaderName) -> String {
    format!("The header {name} names a caller, and it did not come from a proxy that may set it.")
}

fn doubled(what: &str) -> String {
    format!(
        "The request has {what} more than once, and each may name another caller. Send it once."
    )
}

/// Fields that may carry a credential under `principal = "auto"`.
pub(super) const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, X_API_KEY];
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Schemes whose credential is the same in every retry, in lower case.
const REPEATING: [&str; 4] = ["bearer", "basic", "token", "apikey"];
const BEARER: &[u8] = b"bearer";
const NO_BEARER: &str =
    "The Authorization field has no bearer token, by which callers are told apart here.";
const NO_SUBJECT: &str = "The client certificate has no subject, so that it names nobody. In the gateway's configuration, set \
                          `principal = \"mtls:spki\"` for this route, which tells callers apart by their keys.";
const NO_KEYS: &str = "The gateway has no keys to verify bearer tokens with.";
const COOKIE: &str = "The request has a cookie, and the gateway cannot guess which cookie names the caller. In the \
                      gateway's configuration, set `principal = \"cookie:NAME\"` for this route, or \
                      `principal = \"none\"` if all callers may share their keys.";
const SIGNED: &str = "The Authorization field has no scheme, or one that may sign each request anew, so that a retry may \
                      look like another caller. In the gateway's configuration, set `principal = \"header:NAME\"` for this route to a header \
                      that names the caller.";
