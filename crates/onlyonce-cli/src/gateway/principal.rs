//! Identifies the caller from the head of a request.
//!
//! 1. An empty credential is no credential.
//! 2. A credential that comes twice is unclear: the upstream may read the other one.
//! 3. Sources are tried in order and never joined. Under `auto` all credentials are one caller together, and what only may
//!    be one is unclear: guessing would either run a retry twice or show one user another's answer.

#[cfg(test)]
mod tests;
mod unclear;

use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use onlyonce::http::Who;
use onlyonce::key::KeySource;
use onlyonce::planted::{Planted, planted};
use onlyonce::scope::{Principal, ScopePart};

use self::unclear::{Remedies, Unclear};
use super::forward::Client;
use super::jwt::{Jwt, KeyNotFetched};
use crate::config::{Anonymous, PrincipalRule, PrincipalSource, Route, TrustedPeers, is_proof};
use crate::credentials::{self, REPEATING, REPEATING_COUNT, Role};
use crate::tls::ClientCertificate;

/// Tells the callers of one route.
#[derive(Debug)]
pub(super) struct Callers {
    rule: PrincipalRule,
    peers: TrustedPeers,
    anonymous: Anonymous,
    jwt: Option<Arc<Jwt>>,
    /// Whether the ids of operations have their callers in them. Where they have not, nothing is refused for their sake.
    are_told_apart: bool,
    /// Headers that the route has said something else about: they are the key, a deadline, or in the scope of its own.
    explained: Vec<HeaderName>,
    remedies: Remedies,
}

impl Callers {
    pub(super) fn of(route: &Route, jwt: Option<Arc<Jwt>>) -> Self {
        Self {
            rule: route.principal.clone(),
            peers: route.trusted_peers.clone(),
            anonymous: route.anonymous,
            jwt,
            are_told_apart: route.policy.scope().contains(&ScopePart::Principal),
            explained: explained(route),
            remedies: Remedies::of(route),
        }
    }

    /// The caller, by the route's rule.
    pub(super) fn identify(&self, head: &Parts) -> Who {
        let found = match &self.rule {
            PrincipalRule::None => return Principal::anonymous().into(),
            PrincipalRule::Auto => self.all_together(head),
            PrincipalRule::Sources(sources) => self.first_present(sources, head),
        };
        match (found, self.anonymous) {
            (Ok(Some(principal)), _) => principal.into(),
            (Ok(None), Anonymous::Allow) if self.is_misread(&head.headers) => {
                Who::Unclear(NO_BEARER.to_owned())
            }
            (Ok(None), Anonymous::Allow) => Principal::anonymous().into(),
            (Ok(None), Anonymous::Reject) => Who::Nobody,
            (Err(Unidentified::Unclear(unclear)), _) => Who::Unclear(self.remedies.tell(&unclear)),
            (Err(Unidentified::Invalid(why)), _) => Who::Invalid(why),
            (Err(Unidentified::Unverified), _) => Who::Unverified(NOT_FETCHED.to_owned()),
        }
    }

    /// Whether the caller has an `Authorization` that nothing was made of, where bearer tokens are expected: the service may
    /// know its caller by it, so that it is not the credential of nobody.
    fn is_misread(&self, headers: &HeaderMap) -> bool {
        let is_empty = |value| matches!(Authorization::read(value), Authorization::None);
        let value = only(headers, &header::AUTHORIZATION).ok().flatten();
        self.rule.needs_jwt() && value.is_some_and(|value| !is_empty(value))
    }

    /// The caller under `auto`: every credential that is the same in each retry.
    fn all_together(&self, head: &Parts) -> Found {
        let mut lines: [Option<&HeaderValue>; REPEATING_COUNT] = [None; REPEATING_COUNT];
        for (name, value) in &head.headers {
            match credentials::role(name) {
                Role::Nothing => {}
                Role::Credential(place) => {
                    if lines[place].replace(value).is_some() {
                        return Err(Unclear::Doubled(name.to_string()).into());
                    }
                }
                Role::Cookies | Role::Unknown if self.is_explained(name) => {}
                Role::Cookies => {
                    if let Some(cookie) = credentials::cookie_of_a_caller(value.as_bytes()) {
                        return Err(Unclear::of_cookie(cookie).into());
                    }
                }
                Role::Unknown if value.as_bytes().trim_ascii().is_empty() => {}
                Role::Unknown => return Err(Unclear::Header(name.clone()).into()),
            }
        }
        let mut together = Together::default();
        for (place, line) in lines.into_iter().enumerate() {
            if let Some(principal) = line.map_or(Ok(None), |line| of_credential(place, line))? {
                together.add(principal);
            }
        }
        if let Some(principal) = certified(head)? {
            together.add(principal);
        }
        Ok(together.principal())
    }

    fn is_explained(&self, name: &HeaderName) -> bool {
        !self.are_told_apart || self.explained.contains(name)
    }

    /// A header that only trusted peers may send is no reason to look further where another peer has sent it: the caller
    /// would be another one than the service takes it for.
    fn first_present(&self, sources: &[PrincipalSource], head: &Parts) -> Found {
        for source in sources {
            if let Some(principal) = self.caller_by(source, head)? {
                return match source {
                    PrincipalSource::Header(name) if !is_proof(name) && !self.is_trusted(head) => {
                        Err(Unidentified::Invalid(stranger(name)))
                    }
                    _ => Ok(Some(principal)),
                };
            }
        }
        Ok(None)
    }

    fn is_trusted(&self, head: &Parts) -> bool {
        let peer = head.extensions.get::<Arc<Client>>().map(|client| client.origin.ip);
        self.peers.is_everybody() || peer.is_some_and(|peer| self.peers.trusts(peer))
    }

    fn caller_by(&self, source: &PrincipalSource, head: &Parts) -> Found {
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
                let jwt = self.jwt.as_deref();
                let jwt = jwt.ok_or_else(|| Unidentified::Invalid(NO_KEYS.to_owned()))?;
                let is_fetched = head.extensions.get::<KeyNotFetched>().is_none();
                jwt.caller(headers, claims).map_err(|why| match is_fetched {
                    true => Unidentified::Invalid(why),
                    false => Unidentified::Unverified,
                })
            }
            PrincipalSource::Certificate => certified(head),
            PrincipalSource::CertificateKey => {
                Ok(certificate(head).map(|certificate| certificate.key))
            }
        }
    }
}

fn explained(route: &Route) -> Vec<HeaderName> {
    let policy = &route.policy;
    let keys = policy.key_from().iter().filter_map(|source| match source {
        KeySource::Header(name) => Some(name),
        _ => None,
    });
    let scope = policy.scope().iter().filter_map(|part| match part {
        ScopePart::Header(name) => Some(name),
        _ => None,
    });
    keys.chain(scope).chain(policy.deadline_from()).cloned().collect()
}

/// The caller, nobody, or why the caller cannot be identified.
type Found = Result<Option<Principal>, Unidentified>;

/// Why a caller is not identified.
#[derive(Debug)]
enum Unidentified {
    /// The credentials may be of several callers.
    Unclear(Unclear),
    /// The credential is not genuine, as a sentence for its client.
    Invalid(String),
    /// Whether it is genuine cannot be found out now.
    Unverified,
}

impl From<Unclear> for Unidentified {
    fn from(unclear: Unclear) -> Self {
        Self::Unclear(unclear)
    }
}

/// What a credential of [`REPEATING`] says of its caller.
fn of_credential(place: usize, line: &HeaderValue) -> Found {
    let value = line.as_bytes().trim_ascii();
    if value.is_empty() && !planted(Planted::EmptyPrincipalShared) {
        return Ok(None);
    }
    if REPEATING[place] != header::AUTHORIZATION {
        return Ok(Some(Principal::of(REPEATING[place].as_str(), value)));
    }
    match Authorization::read(value) {
        Authorization::None => Ok(None),
        Authorization::Repeats(principal) => Ok(Some(principal)),
        Authorization::Signed => Err(Unclear::Signed.into()),
    }
}

/// Several credentials of one caller, always in the same order. One alone is itself.
#[derive(Debug, Default)]
struct Together {
    first: Option<Principal>,
    /// The digests of all of them, where there are several.
    all: Vec<u8>,
}

impl Together {
    fn add(&mut self, principal: Principal) {
        match &self.first {
            None => self.first = Some(principal),
            Some(first) => {
                if self.all.is_empty() {
                    self.all.extend(first.as_bytes());
                }
                self.all.extend(principal.as_bytes());
            }
        }
    }

    fn principal(self) -> Option<Principal> {
        match self.all.as_slice() {
            [] => self.first,
            // Each digest has the kind of its credential in it, so that none stands for another.
            all => Some(Principal::of("together", all)),
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
        match SCHEMES.iter().find(is_this) {
            Some(_) if credential.is_empty() => Self::None,
            Some(scheme) => Self::Repeats(Principal::of(scheme, credential)),
            None => Self::Signed,
        }
    }
}

/// The subject of the client's certificate, where clients must present one.
fn certified(head: &Parts) -> Found {
    match certificate(head) {
        Some(ClientCertificate { name: None, .. }) => Err(Unclear::NoSubject.into()),
        certificate => Ok(certificate.and_then(|certificate| certificate.name)),
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
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Unclear> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    match lines.next() {
        Some(_) => Err(Unclear::Doubled(name.to_string())),
        None => {
            let value = Some(line.as_bytes().trim_ascii());
            Ok(value.filter(|value| !value.is_empty() || planted(Planted::EmptyPrincipalShared)))
        }
    }
}

/// The one cookie of this name, if it has a value.
fn only_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a [u8]>, Unclear> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let cookies = pairs.map(credentials::cookie);
    let mut values = cookies.filter(|cookie| cookie.0 == name.as_bytes()).map(|cookie| cookie.1);
    let value = values.next();
    match values.next() {
        Some(_) => Err(Unclear::Doubled(format!("cookie {name}"))),
        None => Ok(value.filter(|value| !credentials::is_empty_cookie(value))),
    }
}

fn stranger(name: &HeaderName) -> String {
    format!("The header {name} names a caller, and it did not come from a proxy that may set it.")
}

/// Schemes whose credential is the same in every retry, in lower case.
const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];
const BEARER: &[u8] = b"bearer";
const NO_BEARER: &str =
    "The Authorization field has no bearer token, by which callers are told apart here.";
const NO_KEYS: &str = "The gateway has no keys to verify bearer tokens with.";
const NOT_FETCHED: &str =
    "The key that the bearer token is signed with cannot be fetched from its issuer right now.";
