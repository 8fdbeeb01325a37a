//! Who asks, as a digest: the credential itself is never kept.

use std::fmt;
#[cfg(feature = "run")]
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

#[cfg(feature = "run")]
use super::Secret;

/// The digest of an authenticated identity. Two requests share operations only if theirs are equal.
///
/// ```
/// use onlyonce::scope::Principal;
///
/// let caller = Principal::of("bearer", b"tok_live_1");
/// assert_eq!(caller, Principal::of("bearer", b"tok_live_1"));
/// assert_ne!(caller, Principal::of("api-key", b"tok_live_1"));
/// assert_eq!(format!("{caller:?}"), "Principal(..)");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Principal([u8; 32]);

impl Principal {
    /// The principal that a credential of this kind (`"bearer"`, `"jwt:sub"`) identifies.
    ///
    /// Pass what an authenticated attribute says, never what a caller may choose freely.
    pub fn of(kind: &str, credential: &[u8]) -> Self {
        let digest = Sha256::new_with_prefix(DOMAIN)
            .chain_update([KNOWN])
            .chain_update((kind.len() as u64).to_be_bytes())
            .chain_update(kind)
            .chain_update((credential.len() as u64).to_be_bytes())
            .chain_update(credential);
        Self(digest.finalize().into())
    }

    /// Nobody in particular: all anonymous callers are one principal, and share their operations.
    pub fn anonymous() -> Self {
        Self(Sha256::new_with_prefix(DOMAIN).chain_update([ANONYMOUS]).finalize().into())
    }

    /// The principal with this digest, as a store kept it.
    pub const fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// This principal as a store keeps it: under the secret, where there is one, so that nobody who reads the store can test
    /// a guess of a credential against it. Nobody has no credential to guess.
    #[cfg(feature = "run")]
    pub(crate) fn kept(&self, secret: Option<&Secret>) -> Self {
        match secret.filter(|_| !self.is_anonymous()) {
            Some(secret) => Self(secret.keyed("principal", &self.0)),
            None => *self,
        }
    }

    #[cfg(feature = "run")]
    pub(crate) fn is_anonymous(&self) -> bool {
        static NOBODY: LazyLock<Principal> = LazyLock::new(Principal::anonymous);
        *self == *NOBODY
    }

    /// The first eight hexadecimal digits of the digest: enough to follow a caller through a log.
    #[cfg(feature = "run")]
    pub(crate) fn short(&self) -> String {
        crate::hex::encode(&self.0[..4])
    }

    /// The digest to store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Principal(..)")
    }
}

const DOMAIN: &[u8] = b"onlyonce principal 1\0";
const ANONYMOUS: u8 = 0;
const KNOWN: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    // R26, threat G9
    #[test]
    fn kind_and_credential_never_run_into_each_other() {
        assert_ne!(Principal::of("bearer", b"1"), Principal::of("beare", b"r1"));
        assert_ne!(Principal::of("", b"bearer1"), Principal::of("bearer1", b""));
    }

    #[test]
    fn nobody_is_not_somebody_with_an_empty_name() {
        assert_eq!(Principal::anonymous(), Principal::anonymous());
        assert_ne!(Principal::anonymous(), Principal::of("", b""));
    }

    // threat G15
    #[cfg(feature = "run")]
    #[test]
    fn what_is_kept_cannot_be_computed_without_the_secret() {
        let ann = Principal::of("bearer", b"tok_secret");
        let [one, two] = ["one", "two"].map(|secret| ann.kept(Some(&Secret::new(secret))));
        assert_eq!(ann.kept(None), ann);
        assert!(one != ann && one != two);
        assert_eq!(one, ann.kept(Some(&Secret::new("one"))));
        assert_ne!(one, Principal::of("bearer", b"tok").kept(Some(&Secret::new("one"))));
    }

    // R26
    #[test]
    fn the_credential_is_kept_only_as_a_digest() {
        let principal = Principal::of("bearer", b"tok_secret");
        assert_eq!(Principal::from_bytes(*principal.as_bytes()), principal);
        assert_eq!(format!("{principal:?}"), "Principal(..)");
    }
}
