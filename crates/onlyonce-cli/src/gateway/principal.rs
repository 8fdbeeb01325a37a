//! Who is asking, told from the head of a request.

use http::header::{self, HeaderMap};
use http::request::Parts;
use onlyonce::http::Who;
use onlyonce::scope::Principal;

use crate::config::{Anonymous, PrincipalRule, PrincipalSource};

/// The caller, by the route's rule.
pub(super) fn identify(rule: &PrincipalRule, anonymous: Anonymous, head: &Parts) -> Who {
    let found = match rule {
        PrincipalRule::None => return Principal::anonymous().into(),
        PrincipalRule::Auto => automatic(&head.headers),
        PrincipalRule::Sources(sources) => {
            Ok(sources.iter().find_map(|source| from_source(source, &head.headers)))
        }
    };
    match (found, anonymous) {
        (Ok(Some(principal)), _) => principal.into(),
        (Ok(None), Anonymous::Allow) => Principal::anonymous().into(),
        (Ok(None), Anonymous::Reject) => Who::Nobody,
        (Err(unclear), _) => Who::Unclear(unclear.to_owned()),
    }
}

/// The credential if it is one that repeats; nobody if there is none; an error where guessing would either
/// run a retry twice or show one user another's answer.
fn automatic(headers: &HeaderMap) -> Result<Option<Principal>, &'static str> {
    let authorization = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    if let Some(principal) = authorization.and_then(repeating) {
        return Ok(Some(principal));
    }
    if let Some(key) = headers.get("x-api-key") {
        return Ok(Some(Principal::of("x-api-key", key.as_bytes())));
    }
    match authorization {
        Some(_) => Err(SIGNED),
        None if headers.contains_key(header::COOKIE) => Err(COOKIE),
        None => Ok(None),
    }
}

/// A credential that is the same in every retry.
fn repeating(authorization: &[u8]) -> Option<Principal> {
    let space = authorization.iter().position(|byte| *byte == b' ')?;
    let (scheme, credential) = (&authorization[..space], authorization[space..].trim_ascii());
    let scheme = std::str::from_utf8(scheme).ok()?.to_ascii_lowercase();
    let repeats = REPEATING.contains(&scheme.as_str()) && !credential.is_empty();
    repeats.then(|| Principal::of(&scheme, credential))
}

fn from_source(source: &PrincipalSource, headers: &HeaderMap) -> Option<Principal> {
    match source {
        PrincipalSource::Header(name) => {
            let value = headers.get(name)?;
            Some(Principal::of(name.as_str(), value.as_bytes()))
        }
        PrincipalSource::Cookie(name) => {
            let value = cookie(headers, name)?;
            Some(Principal::of(&format!("cookie {name}"), value.as_bytes()))
        }
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs =
        lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

const REPEATING: [&str; 4] = ["bearer", "basic", "token", "apikey"];
const COOKIE: &str = "Only a cookie says who is asking, and which one counts cannot be guessed. Set \
                      `principal = \"cookie:NAME\"` for this route, or `principal = \"none\"` if all callers are one.";
const SIGNED: &str = "The authorization scheme signs each request anew, so it does not tell a retry from a \
                      stranger. Set `principal = \"header:NAME\"` for this route to what names the caller.";
