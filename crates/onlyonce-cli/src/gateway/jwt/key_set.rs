//! The keys that tokens are verified with.

use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use serde_json::Value;

/// Some keys, each perhaps with an id.
#[derive(Clone, Debug, Default)]
pub(super) struct KeySet(Vec<Named>);

#[derive(Clone, Debug)]
struct Named {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

/// Why a text has no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeySetError {
    #[error("it is neither a JWKS nor a public key as PEM")]
    Format,
    #[error("it has no key that tokens can be verified with")]
    Empty,
    #[error("it has more than {KEYS_MAX} keys")]
    TooMany,
}

impl KeySet {
    /// A secret for HMAC.
    pub(super) fn of_secret(secret: &[u8]) -> Self {
        Self(vec![Named { id: None, algorithm: None, key: DecodingKey::from_secret(secret) }])
    }

    /// The public keys of a JWKS, or of a text with keys as PEM.
    pub(super) fn of_text(text: &[u8]) -> Result<Self, KeySetError> {
        let keys = match serde_json::from_slice::<Value>(text) {
            Ok(document) => of_jwks(&document)?,
            Err(_) => of_pem(text)?,
        };
        match keys.len() {
            0 => Err(KeySetError::Empty),
            1..=KEYS_MAX => Ok(Self(keys)),
            _ => Err(KeySetError::TooMany),
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys that may have signed a token with this header.
    pub(super) fn fitting<'a>(
        &'a self,
        header: &'a Header,
    ) -> impl Iterator<Item = &'a DecodingKey> {
        let fits = move |named: &&Named| {
            let is_same_id = match (&named.id, &header.kid) {
                (Some(id), Some(kid)) => id == kid,
                _ => true,
            };
            let is_meant = named.algorithm.is_none_or(|algorithm| algorithm == header.alg);
            is_same_id && is_meant && named.key.family() == header.alg.family()
        };
        self.0.iter().filter(fits).map(|named| &named.key)
    }
}

/// Keys of a kind that is not known, for encryption, or symmetric, are left out: a secret that others can read is none.
fn of_jwks(document: &Value) -> Result<Vec<Named>, KeySetError> {
    let keys = document["keys"].as_array().ok_or(KeySetError::Format)?;
    Ok(keys.iter().filter_map(named).collect())
}

fn named(key: &Value) -> Option<Named> {
    let jwk: Jwk = serde_json::from_value(key.clone()).ok()?;
    let is_public = key["kty"] != "oct";
    let is_for_signatures = jwk.common.public_key_use != Some(PublicKeyUse::Encryption);
    let algorithm = jwk.common.key_algorithm.map(|algorithm| algorithm.to_string().parse());
    Some(Named {
        algorithm: algorithm.transpose().ok()?,
        key: DecodingKey::from_jwk(&jwk).ok()?,
        id: jwk.common.key_id,
    })
    .filter(|_| is_public && is_for_signatures)
}

fn of_pem(text: &[u8]) -> Result<Vec<Named>, KeySetError> {
    let text = std::str::from_utf8(text).map_err(|_| KeySetError::Format)?;
    let blocks = text.split_inclusive("-----END PUBLIC KEY-----").map(str::trim);
    let blocks = blocks.filter(|block| block.contains("-----BEGIN PUBLIC KEY-----"));
    let key = |block: &str| {
        let pem = block.as_bytes();
        let key = DecodingKey::from_rsa_pem(pem)
            .or_else(|_| DecodingKey::from_ec_pem(pem))
            .or_else(|_| DecodingKey::from_ed_pem(pem));
        key.map(|key| Named { id: None, algorithm: None, key }).map_err(|_| KeySetError::Format)
    };
    blocks.map(key).collect()
}

/// A set that is larger is a mistake.
const KEYS_MAX: usize = 100;
