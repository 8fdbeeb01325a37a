//! A sealed value: what it is made of, and what it is bound to.
//!
//! Its bytes are a version, the id of the key, a nonce, the ciphertext and its tag. Everything before the ciphertext, the
//! operation's id and the field are bound to it as associated data; of an answer also the attempt's token and the status.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Tag, XNonce};
use http::{HeaderMap, StatusCode};

use super::key::{KEY_ID_BYTES, Seal, SealKey};
use crate::record::{Kept, KeyText, Response, SEALED_KEY_MARK, Token, codec};
use crate::scope::OperationId;

impl Seal {
    /// The answer with its headers and body sealed. One that has neither stays as it is.
    pub(super) fn close(
        &self,
        id: OperationId,
        token: Token,
        response: Arc<Response>,
    ) -> Arc<Response> {
        let keys = self.keys();
        let is_bare = matches!(response.body, Kept::No(_)) && response.headers.is_empty();
        let Some(key) = keys.first().filter(|_| !is_bare) else {
            return response;
        };
        if let Kept::Sealed(_) = response.body {
            return response;
        }
        let head = codec::encode_head(&response);
        let body = response.body.stored().map_or(&[][..], |body| body);
        let length = u32::try_from(head.len()).expect("headers have less than 4 GiB");
        let place = Place::Answer { token, status: response.status };
        let sealed = key.close(id, place, &[&length.to_le_bytes(), &head, body]);
        let body = Kept::Sealed(sealed.into());
        Arc::new(Response { status: response.status, headers: HeaderMap::new(), body })
    }

    /// The answer that was sealed; `None` if it does not open.
    pub(super) fn open(
        &self,
        id: OperationId,
        token: Token,
        status: StatusCode,
        sealed: &[u8],
    ) -> Option<Response> {
        let place = Place::Answer { token, status };
        let opened = open(&self.keys(), id, place, sealed).and_then(|plain| {
            let (length, rest) = plain.split_first_chunk()?;
            let head = rest.get(..u32::from_le_bytes(*length) as usize)?;
            let body = plain.slice(length.len() + head.len()..);
            codec::decode_head(head, body).ok()
        });
        if opened.is_none() {
            self.count_unopened(id);
        }
        opened
    }

    /// The text of a key, sealed.
    pub(super) fn close_key(&self, id: OperationId, text: KeyText) -> KeyText {
        match (self.keys().first(), text.as_sent()) {
            (Some(key), Some(sent)) => {
                let sealed = key.close(id, Place::Key, &[sent.as_bytes()]);
                KeyText::new(format!("{SEALED_KEY_MARK}{}", URL_SAFE_NO_PAD.encode(sealed)))
            }
            _ => text,
        }
    }

    /// The text that was sealed; `None` if it is not sealed, or does not open: then it stays as it is.
    pub(super) fn open_key(&self, id: OperationId, text: &KeyText) -> Option<KeyText> {
        let sealed = text.as_str().strip_prefix(SEALED_KEY_MARK)?;
        let opened = URL_SAFE_NO_PAD.decode(sealed).ok().and_then(|sealed| {
            let plain = open(&self.keys(), id, Place::Key, &sealed)?;
            std::str::from_utf8(&plain).ok().map(KeyText::new)
        });
        if opened.is_none() {
            self.count_unopened(id);
        }
        opened
    }
}

/// Where a value belongs.
#[derive(Clone, Copy)]
enum Place {
    Key,
    Answer { token: Token, status: StatusCode },
}

impl Place {
    /// What a value of this place is bound to. `front` is what stands before its ciphertext.
    fn bound(self, id: OperationId, front: &[u8]) -> Vec<u8> {
        let mut bound = [front, id.as_bytes()].concat();
        match self {
            Self::Key => bound.push(KEY),
            Self::Answer { token, status } => {
                bound.push(ANSWER);
                bound.extend_from_slice(token.as_bytes());
                bound.extend_from_slice(&status.as_u16().to_le_bytes());
            }
        }
        bound
    }
}

impl SealKey {
    fn close(&self, id: OperationId, place: Place, plain: &[&[u8]]) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("the operating system gives random bytes");
        let length = FRONT_BYTES + plain.iter().map(|part| part.len()).sum::<usize>() + TAG_BYTES;
        let mut sealed = Vec::with_capacity(length);
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.id);
        sealed.extend_from_slice(&nonce);
        plain.iter().for_each(|part| sealed.extend_from_slice(part));
        let (front, text) = sealed.split_at_mut(FRONT_BYTES);
        let bound = place.bound(id, front);
        let tag = self.cipher.encrypt_inout_detached(&XNonce::from(nonce), &bound, text.into());
        sealed.extend_from_slice(&tag.expect("no value has the 256 GiB that the cipher takes"));
        sealed
    }

    fn open(&self, id: OperationId, place: Place, sealed: &[u8]) -> Option<Bytes> {
        let (front, rest) = sealed.split_at_checked(FRONT_BYTES)?;
        let (text, tag) = rest.split_last_chunk::<TAG_BYTES>()?;
        let nonce: [u8; NONCE_BYTES] = front[FRONT_BYTES - NONCE_BYTES..].try_into().ok()?;
        let mut plain = text.to_vec();
        let bound = place.bound(id, front);
        let (nonce, tag) = (XNonce::from(nonce), Tag::from(*tag));
        let opened =
            self.cipher.decrypt_inout_detached(&nonce, &bound, plain.as_mut_slice().into(), &tag);
        opened.ok().map(|()| plain.into())
    }
}

/// Opens a value with the key that sealed it.
fn open(keys: &[SealKey], id: OperationId, place: Place, sealed: &[u8]) -> Option<Bytes> {
    let [VERSION, rest @ ..] = sealed else { return None };
    let key_id = rest.first_chunk::<KEY_ID_BYTES>()?;
    keys.iter().find(|key| key.id == *key_id)?.open(id, place, sealed)
}

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const FRONT_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES;
/// The fields. A number never gets another meaning.
const KEY: u8 = 1;
const ANSWER: u8 = 2;

#[cfg(test)]
mod tests;
