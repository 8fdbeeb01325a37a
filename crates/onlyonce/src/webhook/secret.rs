//! Secrets of webhooks, and what they sign.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ctutils::CtEq;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::{Provider, VerifierError};

/// What a provider and its receiver both know.
#[derive(Clone)]
pub(super) struct Secret(Box<[u8]>);

impl Secret {
    /// The secret that the provider shows as this text.
    pub(super) fn read(provider: Provider, text: &str) -> Result<Self, VerifierError> {
        match provider {
            _ if text.is_empty() => Err(VerifierError::EmptySecret),
            Provider::Standard => standard(text).map(Self).ok_or(VerifierError::BadSecret),
            _ => Ok(Self(text.as_bytes().into())),
        }
    }

    /// Whether it is this text. The comparison takes the same time wherever they differ, and however long they are.
    pub(super) fn is(&self, text: &str) -> bool {
        let own: [u8; 32] = Sha256::digest(&self.0).into();
        let given: [u8; 32] = Sha256::digest(text).into();
        own.ct_eq(&given).to_bool()
    }

    /// Whether this is the HMAC-SHA1 of the text.
    pub(super) fn has_signed_sha1(&self, text: &[u8], given: &[u8; 20]) -> bool {
        let mut mac: Hmac<Sha1> = keyed(&self.0);
        Mac::update(&mut mac, text);
        let own: [u8; 20] = mac.finalize().into_bytes().into();
        own.ct_eq(given).to_bool()
    }

    /// Whether one of these is the HMAC-SHA256 of the parts. The comparison takes the same time wherever they differ.
    pub(super) fn has_signed(&self, parts: &[&[u8]], given: &[[u8; 32]]) -> bool {
        let mut mac: Hmac<Sha256> = keyed(&self.0);
        parts.iter().for_each(|part| Mac::update(&mut mac, part));
        let own: [u8; 32] = mac.finalize().into_bytes().into();
        given.iter().any(|given| own.ct_eq(given).to_bool())
    }
}

fn keyed<M: Mac + KeyInit>(secret: &[u8]) -> M {
    <M as KeyInit>::new_from_slice(secret).expect("HMAC takes a key of any length")
}

/// The prefix is left out by some senders.
fn standard(text: &str) -> Option<Box<[u8]>> {
    let bytes = base64(text.strip_prefix("whsec_").unwrap_or(text))?;
    STANDARD_BYTES.contains(&bytes.len()).then(|| bytes.into())
}

/// The bytes of a base64 text, with padding or without it.
pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// How long a secret is, by Standard Webhooks.
const STANDARD_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
