//! Verifies bearer tokens, and tells whose they are.

mod fetched;
mod key_set;
mod provider;

use std::collections::HashSet;
use std::sync::Arc;

use http::header::HeaderMap;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::Principal;
use onlyonce::store::BoxError;
use quick_cache::sync::Cache;
use ring::digest;
use serde_json::{Map, Value};

use self::fetched::{Fetched, Search};
use self::key_set::KeySet;
use super::principal::bearer;
use crate::config::{JwtKeys, JwtRule};

/// Verifies tokens by `[jwt]`.
#[derive(Debug)]
pub(super) struct Jwt {
    rule: JwtRule,
    keys: Keys,
    verified: Cache<[u8; 32], Verified>,
}

#[derive(Debug)]
enum Keys {
    Given(Arc<KeySet>),
    Fetched(Fetched),
}

/// Whose a token is, and until when, in seconds since 1970.
#[derive(Clone, Debug)]
struct Verified {
    principal: Principal,
    until: u64,
    /// The keys by which it was verified.
    keys: Arc<KeySet>,
}

impl Jwt {
    /// Reads or fetches the keys. An address that does not answer is asked again later.
    pub(super) async fn start(rule: &JwtRule) -> Result<Self, BoxError> {
        provider::install();
        let keys = match &rule.keys {
            JwtKeys::Secret(secret) => Keys::Given(Arc::new(KeySet::of_secret(secret))),
            JwtKeys::Url(url) => Keys::Fetched(Fetched::start(url).await?),
            JwtKeys::File(path) => {
                let text = std::fs::read(path).map_err(BoxError::from);
                let keys = text.and_then(|text| Ok(KeySet::of_text(&text)?));
                let keys =
                    keys.map_err(|error| format!("[jwt] `keys`, {}: {error}", path.display()))?;
                Keys::Given(Arc::new(keys))
            }
        };
        Ok(Self { rule: rule.clone(), keys, verified: Cache::new(VERIFIED_MAX) })
    }

    /// Whose the request's bearer token is, by these claims; `None` without such a token.
    ///
    /// # Errors
    /// Why the token is not taken, as a sentence for its client.
    pub(super) fn caller(
        &self,
        headers: &HeaderMap,
        claims: &[String],
    ) -> Result<Option<Principal>, String> {
        let Some(token) = bearer(headers) else { return Ok(None) };
        let (keys, place) = (self.keys(), place(token, claims));
        let known = self.verified.get(&place);
        let known = known.filter(|known| known.until > now_s() && Arc::ptr_eq(&known.keys, &keys));
        if let Some(known) = known {
            return Ok(Some(known.principal));
        }
        let said = self.verify(token, &keys).map_err(|_| UNVERIFIED.to_owned())?;
        let principal = principal(&said, claims)?;
        let until = said.get("exp").and_then(Value::as_f64).unwrap_or_default() as u64;
        self.verified.insert(place, Verified { principal, until, keys });
        Ok(Some(principal))
    }

    /// Looks for the key that the request's token names, if it is not known. `false` where the issuer could not be asked, so
    /// that nobody knows whether the token is good.
    pub(super) async fn learn(&self, headers: &HeaderMap) -> bool {
        let Keys::Fetched(fetched) = &self.keys else { return true };
        let header = bearer(headers).and_then(|token| decode_header(token).ok());
        // A token that would not be taken anyway has nobody wait for the issuer.
        let header = header.filter(|header| self.rule.algorithms.contains(&header.alg));
        match header {
            Some(header) => fetched.search(&header).await != Search::Unanswered,
            None => true,
        }
    }

    fn keys(&self) -> Arc<KeySet> {
        match &self.keys {
            Keys::Given(keys) => keys.clone(),
            Keys::Fetched(fetched) => fetched.keys(),
        }
    }

    /// What the token says, if one of the keys has signed it and it is meant for here and now.
    fn verify(&self, token: &[u8], keys: &KeySet) -> Result<Map<String, Value>, BoxError> {
        let header = decode_header(token)?;
        // RFC 7515 section 4.1.11: what is critical and not understood makes a token invalid, and nothing is understood.
        if header.crit.is_some() {
            return Err("it has a critical extension".into());
        }
        let validation = self.validation(&header);
        let verified = keys.fitting(&header).map(|key| decode(token, key, &validation));
        let said = verified.into_iter().find_map(Result::ok);
        said.map(|token| token.claims).ok_or_else(|| "no key has signed it".into())
    }

    fn validation(&self, header: &Header) -> Validation {
        let mut validation = Validation::new(header.alg);
        validation.algorithms.retain(|algorithm| self.rule.algorithms.contains(algorithm));
        validation.required_spec_claims = HashSet::from(["exp".to_owned()]);
        validation.validate_nbf = true;
        validation.validate_aud = self.rule.audience.is_some();
        if let Some(audience) = &self.rule.audience {
            validation.set_audience(&[audience]);
            validation.required_spec_claims.insert("aud".to_owned());
        }
        if let Some(issuer) = &self.rule.issuer {
            validation.set_issuer(&[issuer]);
            validation.required_spec_claims.insert("iss".to_owned());
        }
        validation
    }
}

/// The issuer, and the value of each claim: a refreshed token has the same.
fn principal(said: &Map<String, Value>, claims: &[String]) -> Result<Principal, String> {
    let mut values = said.get("iss").map(Value::to_string).unwrap_or_default();
    for claim in claims {
        let value = match said.get(claim) {
            Some(value @ Value::String(text)) if !text.is_empty() => value,
            // A number that is not whole, or has too many digits, is rounded when it is read: two callers would be one.
            Some(value @ Value::Number(number)) if number.is_i64() || number.is_u64() => value,
            _ => {
                return Err(format!(
                    "The bearer token has no claim {claim:?} that names its caller."
                ));
            }
        };
        // JSON, so that no two lists of values have one text.
        values.push_str(&format!(" {claim:?} {value}"));
    }
    Ok(Principal::of("jwt", values.as_bytes()))
}

fn place(token: &[u8], claims: &[String]) -> [u8; 32] {
    let mut hash = digest::Context::new(&digest::SHA256);
    // Its length first, so that no token with a claim's name at its end stands for another.
    hash.update(&(token.len() as u64).to_be_bytes());
    hash.update(token);
    claims.iter().for_each(|claim| hash.update(format!(" {claim:?}").as_bytes()));
    let digest = hash.finish();
    std::array::from_fn(|place| digest.as_ref()[place])
}

fn now_s() -> u64 {
    SystemClock.wall().as_ms().unsigned_abs() / 1_000
}

/// Put into the extensions of a request whose token is of a key that could not be asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyNotFetched;

/// Nothing more is told: what is wrong with a forged token helps only who forged it.
const UNVERIFIED: &str = "The bearer token is not valid: not signed by a known key, expired, or not meant for this service.";
/// Tokens whose signature is not verified again while they are valid.
const VERIFIED_MAX: usize = 10_000;
