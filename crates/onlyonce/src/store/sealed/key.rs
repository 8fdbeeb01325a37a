//! Keys that seal and open, and the set of them that is in use.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use sha2::{Digest, Sha256};
use tracing::warn;

use crate::hex;

/// The keys in use: the first seals, all of them open. A clone is the same set.
#[derive(Clone, Default)]
pub struct Seal(Arc<Shared>);

#[derive(Default)]
struct Shared {
    keys: RwLock<Arc<[SealKey]>>,
    unopened: AtomicU64,
    is_told: AtomicBool,
}

impl Seal {
    /// A set of these keys. Without any, nothing is sealed.
    pub fn new(keys: Vec<SealKey>) -> Self {
        let seal = Self::default();
        seal.replace(keys);
        seal
    }

    /// From now on these are the keys.
    pub fn replace(&self, keys: Vec<SealKey>) {
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
        self.0.is_told.store(false, Ordering::Relaxed);
    }

    /// How many values did not open since this set was made. Each time that one is read counts.
    pub fn unopened(&self) -> u64 {
        self.0.unopened.load(Ordering::Relaxed)
    }

    pub(super) fn is_sealing(&self) -> bool {
        !self.keys().is_empty()
    }

    pub(super) fn keys(&self) -> Arc<[SealKey]> {
        self.0.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a value that did not open; the first since the keys were given is logged.
    pub(super) fn count_unopened(&self, id: impl fmt::Display) {
        self.0.unopened.fetch_add(1, Ordering::Relaxed);
        if !self.0.is_told.swap(true, Ordering::Relaxed) {
            warn!(operation = %id, "{UNOPENED}");
        }
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seal").field(&self.keys()).finish()
    }
}

/// A key of 32 bytes. It is wiped from memory when it is dropped, and never shown.
///
/// ```
/// use onlyonce::store::sealed::SealKey;
///
/// let key: SealKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=".parse()?;
/// assert_eq!(key, SealKey::new(*b"0123456789abcdef0123456789abcdef"));
/// assert!(!format!("{key:?}").contains("0123456789"));
/// # Ok::<(), onlyonce::store::sealed::SealKeyError>(())
/// ```
#[derive(Clone)]
pub struct SealKey {
    pub(super) cipher: XChaCha20Poly1305,
    pub(super) id: KeyId,
}

/// Tells which key a value was sealed with, and nothing about the key.
pub(super) type KeyId = [u8; KEY_ID_BYTES];

impl SealKey {
    /// The key of these bytes. Make them at random: `openssl rand -hex 32`.
    pub fn new(bytes: [u8; 32]) -> Self {
        let digest = Sha256::new_with_prefix(b"onlyonce seal key id 1\0").chain_update(bytes);
        let digest: [u8; 32] = digest.finalize().into();
        let id = std::array::from_fn(|place| digest[place]);
        Self { cipher: XChaCha20Poly1305::new(&bytes.into()), id }
    }
}

/// Two keys are the same if their ids are.
impl PartialEq for SealKey {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for SealKey {}

/// Only the id is shown, as it stands in sealed values.
impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", hex::encode(&self.id))
    }
}

impl FromStr for SealKey {
    type Err = SealKeyError;

    /// 64 hexadecimal digits, or base64 of either alphabet.
    fn from_str(text: &str) -> Result<Self, SealKeyError> {
        let text = text.trim();
        let from_base64 = || {
            let alphabet = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
            let config = GeneralPurposeConfig::new()
                .with_decode_padding_mode(DecodePaddingMode::Indifferent);
            GeneralPurpose::new(alphabet, config).decode(text).ok()?.try_into().ok()
        };
        hex::decode(text).or_else(from_base64).map(Self::new).ok_or(SealKeyError)
    }
}

/// The text is no key. Give 32 bytes, as 64 hexadecimal digits or as base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of the seal is 32 bytes, in hexadecimal digits or base64")]
pub struct SealKeyError;

pub(super) const KEY_ID_BYTES: usize = 8;
const UNOPENED: &str = "a sealed value does not open: its key is not among those of the seal, or it was changed; a completed \
                        operation is answered as not kept (told once, counted always)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_from_every_usual_spelling_and_from_nothing_shorter() {
        let key = SealKey::new([0xfb; 32]);
        let spellings = [
            "fb".repeat(32),
            format!("{}\n", "FB".repeat(32)),
            "+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/s=".to_owned(),
            "+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/v7+/s".to_owned(),
            "-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_v7-_s".to_owned(),
        ];
        for text in spellings {
            assert_eq!(text.parse(), Ok(key.clone()), "{text}");
        }
        for text in ["", "fb", &"fb".repeat(31), &"fb".repeat(33), "correct horse battery staple"] {
            assert_eq!(text.parse::<SealKey>(), Err(SealKeyError), "{text}");
        }
    }

    // R184: H5, keys are in no log
    #[test]
    fn no_key_is_shown() {
        let shown = format!("{:?}", Seal::new(vec![SealKey::new([0xfb; 32])]));
        assert!(shown.starts_with("Seal([SealKey("), "{shown}");
        assert!(!shown.contains("fbfb"), "{shown}");
    }
}
