//! Requests that only their owner can read: XChaCha20-Poly1305, whose nonces may be random.

use std::fmt;

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};

use super::JournalError;

pub(super) struct Seal {
    cipher: XChaCha20Poly1305,
    salt: [u8; 32],
}

impl Seal {
    pub(super) fn new(key: [u8; 32]) -> Self {
        let salt = Sha256::new_with_prefix(SALT).chain_update(key).finalize().into();
        Self { cipher: XChaCha20Poly1305::new(&key.into()), salt }
    }

    /// The key of the digests, so that nobody can test guesses of a body against them.
    pub(super) fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Nonce, then ciphertext. Bound to `key`, so that the contents of two entries cannot be swapped.
    pub(super) fn close(&self, key: &str, plain: &[u8]) -> Result<Vec<u8>, JournalError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| JournalError::Sealed)?;
        let payload = Payload { msg: plain, aad: key.as_bytes() };
        let cipher = self.cipher.encrypt(&XNonce::from(nonce), payload);
        Ok([&nonce[..], &cipher.map_err(|_| JournalError::Sealed)?].concat())
    }

    pub(super) fn open(&self, key: &str, sealed: &[u8]) -> Result<Vec<u8>, JournalError> {
        let (nonce, cipher) = sealed.split_first_chunk().ok_or(JournalError::Sealed)?;
        let payload = Payload { msg: cipher, aad: key.as_bytes() };
        let plain = self.cipher.decrypt(&XNonce::from(*nonce), payload);
        plain.map_err(|_| JournalError::Sealed)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

const NONCE_BYTES: usize = 24;
const SALT: &[u8] = b"onlyonce journal digest 1\0";
