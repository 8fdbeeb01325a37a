//! Tokens: keys that the server makes for one caller and one place.
//!
//! 1. A token is `oot1_` and hexadecimal digits: 8 bytes of expiry (milliseconds since 1970), 16 bytes that tell it from
//!    other tokens, 16 bytes of an HMAC-SHA-256.
//! 2. The HMAC is over the caller, the name of the route, the listed parts of the scope, and everything before it in the
//!    token. Its key is derived from the deployment's secret.
//! 3. Nothing is stored about a token. Used as a key, it is a key like any other.

use std::time::Duration;

use ctutils::CtEq;

use super::{Scope, ScopePart, Secret, encoding};
use crate::clock::{StoreTime, as_ms};
use crate::hex;

/// What a token is bound to, and signed with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound<'a> {
    pub(crate) secret: &'a Secret,
    pub(crate) route: &'a str,
    pub(crate) parts: &'a [ScopePart],
    /// The principal counts whether `parts` lists it or not.
    pub(crate) scope: &'a Scope<'a>,
}

impl Bound<'_> {
    /// A new token at every call.
    pub(crate) fn issue(&self, expires_at: StoreTime) -> String {
        let mut unique = [0; UNIQUE_BYTES];
        getrandom::fill(&mut unique).expect("the operating system gives random bytes");
        self.token(expires_at, unique)
    }

    /// The one token of this context and this expiry.
    pub(crate) fn issue_for(&self, context: &[u8], expires_at: StoreTime) -> String {
        let text = hex::encode(context) + "-" + &hex::encode(&expires_at.as_ms().to_be_bytes());
        self.token(expires_at, self.digest("the contexts of tokens", &text))
    }

    /// When the token expires; `None` if it was not issued for this caller and this place.
    pub(crate) fn verify(&self, text: &str) -> Option<StoreTime> {
        let (expires_at, unique) = parts_of(text)?;
        // Compared as text: other spellings of the same bytes, such as upper-case digits, would be other keys.
        let expected = self.token(expires_at, unique);
        expected.as_bytes().ct_eq(text.as_bytes()).to_bool().then_some(expires_at)
    }

    fn token(&self, expires_at: StoreTime, unique: [u8; UNIQUE_BYTES]) -> String {
        let expiry = hex::encode(&expires_at.as_ms().to_be_bytes());
        let unsigned = format!("{PREFIX}{expiry}{}", hex::encode(&unique));
        let mac = self.digest("tokens", &unsigned);
        unsigned + &hex::encode(&mac)
    }

    /// 128 bits of an HMAC over all that the token is bound to, and this text.
    fn digest(&self, purpose: &str, text: &str) -> [u8; 16] {
        let encoded = encoding::of_token(self.route, self.parts, self.scope, text);
        let digest = Secret::new(self.secret.derive(purpose)).digest(&encoded);
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        half
    }
}

/// Whether the text says of itself that it is a token.
pub(crate) fn has_form(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// When a token for a context expires. The same moment is returned for half of the `ttl`, so that the same context gets
/// the same token; the token lives between half of the `ttl` and the whole.
pub(crate) fn context_expiry(now: StoreTime, ttl: Duration) -> StoreTime {
    let half_ms = (as_ms(ttl) / 2).max(1);
    let begun_ms = now.as_ms() - now.as_ms().rem_euclid(half_ms);
    StoreTime::from_ms(begun_ms).plus_ms(half_ms).plus_ms(half_ms)
}

/// The expiry, and the bytes that tell it from other tokens.
fn parts_of(text: &str) -> Option<(StoreTime, [u8; UNIQUE_BYTES])> {
    let digits = text.strip_prefix(PREFIX).filter(|_| text.len() == TOKEN_LENGTH)?;
    let expiry = i64::from_be_bytes(hex::decode(digits.get(..16)?)?);
    Some((StoreTime::from_ms(expiry), hex::decode(digits.get(16..48)?)?))
}

/// How many characters a token has.
pub const TOKEN_LENGTH: usize = PREFIX.len() + 2 * (8 + UNIQUE_BYTES + 16);

const PREFIX: &str = "oot1_";
const UNIQUE_BYTES: usize = 16;

#[cfg(test)]
mod tests;
