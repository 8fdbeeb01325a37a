//! Who asks, where, and the id that an operation is stored under.
//!
//! 1. An id names the parts of the scope that the policy lists, and the key; never the key alone.
//! 2. Every part is tagged and length-prefixed, so no two different tuples are hashed from the same bytes.
//! 3. With a [`Secret`] the id is an HMAC, and so are the digests of the caller and of the request beside it: without the
//!    secret nobody can compute them, or tell that two deployments hold the same key. A record has its key beside it, in
//!    clear unless the store is sealed.
//! 4. The order in which a policy lists its parts means nothing.
//! 5. The first four bytes of an id depend on the key alone ([`IdPrefix`]): the operations of one key lie side by side
//!    in a store, and are found by the key without knowing who used it and where.
//!
//! Ids are stable for as long as [`SCOPE_VERSION`] is: a change of it, of the secret or of the parts
//! makes every live key a fresh one.
//!
//! ```
//! use onlyonce::key::{Key, KeyRules};
//! use onlyonce::scope::{Principal, Scope, ScopePart, operation_id};
//!
//! let key = Key::from_text("order-17", &KeyRules::default())?;
//! let [ann, bob] = ["ann", "bob"].map(|name| Principal::of("user", name.as_bytes()));
//! let headers = http::HeaderMap::new();
//! let (host, method, path) = ("api.test", "POST", "/charges");
//! let scope = |principal| Scope { principal, host, method, path, headers: &headers, body: b"" };
//! let id = |principal| operation_id(None, &ScopePart::DEFAULT, &scope(principal), &key);
//! assert_eq!(id(&ann), id(&ann));
//! assert_ne!(id(&ann), id(&bob));
//! # Ok::<(), onlyonce::key::KeyError>(())
//! ```

mod encoding;
mod path;
mod principal;
mod spelling;
#[cfg(feature = "tower")]
pub(crate) mod token;

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::fingerprint::Pointer;
use crate::hex;
use crate::key::Key;
use crate::planted::{Planted, planted};

pub use path::normal_path;
pub use principal::Principal;
#[cfg(feature = "tower")]
pub(crate) use spelling::{Spelling, spelling};
pub use spelling::{folded_path, is_plain_path, is_settled_path, readings};
#[cfg(feature = "tower")]
pub use token::TOKEN_LENGTH;

/// The version of the encoding that ids are hashed from. A store remembers it. 3: the path is [folded](folded_path).
pub const SCOPE_VERSION: u8 = 3;

/// The id that an operation is stored under: 128 bits of digests of its key and of its scope.
///
/// ```
/// use onlyonce::scope::OperationId;
///
/// let id: OperationId = "000102030405060708090a0b0c0d0e0f".parse()?;
/// assert_eq!(id.as_bytes()[15], 15);
/// assert_eq!(id.to_string(), "000102030405060708090a0b0c0d0e0f");
/// # Ok::<(), onlyonce::scope::OperationIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId([u8; 16]);

impl OperationId {
    /// The id with these bytes, as a store kept them.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A key for a call that this operation makes to another service: the same at every attempt, on every node and after
    /// every restart; another one for every `step` and every operation. Send it instead of the client's own key, which two
    /// of your clients may share.
    ///
    /// ```
    /// use onlyonce::scope::OperationId;
    ///
    /// // As `tx.operation_id()` of the transactional mode tells it.
    /// let id: OperationId = "34ff4c66-aaf9-e349-1b35-23e2c54e5e87".parse()?;
    /// assert_eq!(id.derive("card charged"), id.derive("card charged"));
    /// assert_ne!(id.derive("card charged"), id.derive("card refunded"));
    /// assert_eq!(id.derive("card charged").len(), 32);
    /// # Ok::<(), onlyonce::scope::OperationIdError>(())
    /// ```
    pub fn derive(&self, step: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(b"onlyonce derived key 1");
        hash.update(self.0);
        hash.update(step.as_bytes());
        hex::encode(&hash.finalize()[..16])
    }

    /// The part of the id that depends on the key alone.
    pub const fn prefix(&self) -> IdPrefix {
        let [a, b, c, d, ..] = self.0;
        IdPrefix([a, b, c, d])
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({self})")
    }
}

impl FromStr for OperationId {
    type Err = OperationIdError;

    fn from_str(text: &str) -> Result<Self, OperationIdError> {
        match text.len() {
            // As a UUID is written.
            36 => hex::decode(&text.replace('-', "")),
            _ => hex::decode(text),
        }
        .map(Self)
        .ok_or(OperationIdError)
    }
}

/// The text is no operation id. Give the 32 hexadecimal digits that a list or a log shows, or those of a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an operation id is 32 hexadecimal digits")]
pub struct OperationIdError;

/// The first four bytes of an id: a digest of the key alone. Other keys may have the same one, so a record that is found
/// by its prefix must be compared by its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdPrefix([u8; 4]);

impl IdPrefix {
    /// The prefix of every id of this key, under the deployment's secret.
    ///
    /// ```
    /// use onlyonce::key::{Key, KeyRules};
    /// use onlyonce::scope::{IdPrefix, Principal, operation_id_of};
    ///
    /// let key = Key::from_text("msg-1", &KeyRules::default())?;
    /// let id = operation_id_of(None, "invoices", &Principal::of("consumer", b"billing"), &key);
    /// assert_eq!(id.prefix(), IdPrefix::of_key(None, "msg-1"));
    /// # Ok::<(), onlyonce::key::KeyError>(())
    /// ```
    pub fn of_key(secret: Option<&Secret>, key: &str) -> Self {
        KeyDigest::of_key(secret, key).prefix()
    }

    /// The bytes that an id begins with.
    pub const fn as_bytes(&self) -> &[u8; 4] {
        &self.0
    }

    /// The highest id with this prefix.
    pub const fn last_id(self) -> OperationId {
        let mut id = [0xff; 16];
        let (prefix, _) = id.split_at_mut(self.0.len());
        prefix.copy_from_slice(&self.0);
        OperationId(id)
    }

    /// The lowest id with this prefix.
    pub const fn first_id(self) -> OperationId {
        let mut id = [0; 16];
        let (prefix, _) = id.split_at_mut(self.0.len());
        prefix.copy_from_slice(&self.0);
        OperationId(id)
    }
}

/// A digest of the key alone, under the deployment's secret: what the audit trail has instead of the key.
///
/// ```
/// use onlyonce::scope::{IdPrefix, KeyDigest};
///
/// let digest = KeyDigest::of_key(None, "msg-1");
/// assert_eq!(digest.prefix(), IdPrefix::of_key(None, "msg-1"));
/// assert_ne!(digest, KeyDigest::of_key(None, "msg-2"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of this key: SHA-256, or HMAC-SHA-256 with a secret. Without a secret, whoever can guess a key can tell
    /// that it was used.
    pub fn of_key(secret: Option<&Secret>, key: &str) -> Self {
        Self(digest(secret, &encoding::of_key(key)))
    }

    /// What every id of this key begins with.
    pub const fn prefix(&self) -> IdPrefix {
        let [a, b, c, d, ..] = self.0;
        IdPrefix([a, b, c, d])
    }

    /// The digest with these bytes, as a store kept them.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes to store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(..)")
    }
}

/// The deployment's secret. All nodes that share a store need the same one.
///
/// ```
/// use onlyonce::scope::Secret;
///
/// assert_eq!(format!("{:?}", Secret::new(b"hunter2")), "Secret(..)");
/// ```
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// A secret of these bytes, of any length; 32 random ones are right.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self(Hmac::new_from_slice(bytes.as_ref()).expect("HMAC takes a key of any length"))
    }

    /// A key for another purpose than ids. It tells nothing of the secret, nor of the keys for other purposes.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        self.digest(format!("onlyonce: a key for {purpose}").as_bytes())
    }

    /// A digest under the secret of another digest, for one `purpose`.
    #[cfg(feature = "run")]
    pub(crate) fn keyed(&self, purpose: &str, digest: &[u8; 32]) -> [u8; 32] {
        let mac = self.0.clone().chain_update(b"onlyonce kept digest 1\0").chain_update(purpose);
        mac.chain_update([0]).chain_update(digest).finalize().into_bytes().into()
    }

    fn digest(&self, message: &[u8]) -> [u8; 32] {
        self.0.clone().chain_update(message).finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A part of where a key counts. What a policy does not list, requests may differ in and still be one operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScopePart {
    /// Who asks. Without it, callers can collide with and replay each other's operations.
    Principal,
    /// The host name that was asked, in lower case and without its port.
    Host,
    /// The request method.
    Method,
    /// The path, parameters filled in, as [`folded_path`] has it: its spellings are one operation, and the fingerprint
    /// tells them apart.
    Path,
    /// The path as sent, after [`normal_path`], for a service that tells every spelling of a path apart.
    LiteralPath,
    /// A header by which the service chooses what a request is about (a tenant, `X-Original-URL`): all of its
    /// values as sent, in their order. Absent is not empty.
    Header(HeaderName),
    /// A string or a number of a JSON body by which the service chooses what a request is about, such as the
    /// `/operationName` of GraphQL. Any other value, and a body that is no JSON, count as absent. Recovery points do not
    /// read it, and whoever looks an operation up has no body to read it from.
    Json(Pointer),
}

impl ScopePart {
    /// The default scope.
    pub const DEFAULT: [Self; 4] = [Self::Principal, Self::Host, Self::Method, Self::Path];
}

impl fmt::Display for ScopePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Principal => f.write_str("principal"),
            Self::Host => f.write_str("host"),
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("path"),
            Self::LiteralPath => f.write_str("literal path"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
        }
    }
}

/// Where a key was used. Host, path, headers and body are given as sent.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// Who asks.
    pub principal: &'a Principal,
    /// The request's host, with or without a port.
    pub host: &'a str,
    /// The request method.
    pub method: &'a str,
    /// The request's path, without its query.
    pub path: &'a str,
    /// The request's headers; only those that a policy lists are looked at.
    pub headers: &'a HeaderMap,
    /// The request's body; only what a policy points to is looked at.
    pub body: &'a [u8],
}

/// Headers may hold credentials, so none is shown.
impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, method, path, .. } = self;
        write!(f, "Scope({method} {host}{path})")
    }
}

/// The id of the operation that `key` names within the `parts` of this `scope`.
///
/// 32 bits of a digest of the key, then 96 of a digest of scope and key: SHA-256, or HMAC-SHA-256 with a secret. Parts
/// may be in any order, and repeat.
pub fn operation_id(
    secret: Option<&Secret>,
    parts: &[ScopePart],
    scope: &Scope<'_>,
    key: &Key,
) -> OperationId {
    identify(secret, &encoding::of_request(parts, scope, key), key)
}

/// The id of an operation that is no HTTP request: a message, a job, a call of the library.
///
/// It never equals the id of a request, whatever the namespace.
///
/// ```
/// use onlyonce::key::{Key, KeyRules};
/// use onlyonce::scope::{Principal, operation_id_of};
///
/// let key = Key::from_text("msg-1", &KeyRules::default())?;
/// let worker = Principal::of("consumer", b"billing");
/// assert_ne!(operation_id_of(None, "invoices", &worker, &key), operation_id_of(None, "refunds", &worker, &key));
/// # Ok::<(), onlyonce::key::KeyError>(())
/// ```
pub fn operation_id_of(
    secret: Option<&Secret>,
    namespace: &str,
    principal: &Principal,
    key: &Key,
) -> OperationId {
    identify(secret, &encoding::of_namespace(namespace, principal, key), key)
}

fn identify(secret: Option<&Secret>, encoded: &[u8], key: &Key) -> OperationId {
    let OperationId(mut id) = IdPrefix::of_key(secret, key.as_str()).first_id();
    let rest = digest(secret, encoded);
    let is_joined = planted(Planted::ScopeJoinedWithColon);
    let prefix_bytes = if is_joined { 0 } else { size_of::<IdPrefix>() };
    id[prefix_bytes..].copy_from_slice(&rest[..16 - prefix_bytes]);
    OperationId(id)
}

/// A digest of what a limit is about.
#[cfg(feature = "tower")]
pub(crate) fn limited_subject(secret: Option<&Secret>, encoded: &[u8]) -> [u8; 16] {
    let digest = digest(secret, &[b"onlyonce limit\0", encoded].concat());
    std::array::from_fn(|place| digest[place])
}

fn digest(secret: Option<&Secret>, encoded: &[u8]) -> [u8; 32] {
    match secret {
        Some(secret) => secret.digest(encoded),
        None => Sha256::digest(encoded).into(),
    }
}

#[cfg(test)]
mod tests;
