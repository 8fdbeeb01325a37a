//! Who asks, where, and the id that an operation is stored under.
//!
//! 1. An id names the parts of the scope that the policy lists, and the key; never the key alone.
//! 2. Every part is tagged and length-prefixed, so no two different tuples are hashed from the same bytes.
//! 3. With a [`Secret`] the id is an HMAC: without the secret nobody can compute it, or tell that two
//!    deployments hold the same key. A record has its key beside it, in clear.
//! 4. The order in which a policy lists its parts means nothing.
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
//! let scope = |principal| Scope { principal, host, method, path, headers: &headers };
//! let id = |principal| operation_id(None, &ScopePart::DEFAULT, &scope(principal), &key);
//! assert_eq!(id(&ann), id(&ann));
//! assert_ne!(id(&ann), id(&bob));
//! # Ok::<(), onlyonce::key::KeyError>(())
//! ```

mod encoding;
mod path;
mod principal;

use std::fmt;
use std::str::FromStr;

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use sha2::{Digest, Sha256};

use crate::hex;
use crate::key::Key;

pub use path::normal_path;
pub use principal::Principal;

/// The version of the encoding that ids are hashed from. A store remembers it.
pub const SCOPE_VERSION: u8 = 1;

/// The id that an operation is stored under: 128 bits of a digest over its scope and its key.
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
        hex::decode(text).map(Self).ok_or(OperationIdError)
    }
}

/// The text is no operation id. Give the 32 hexadecimal digits that a list or a log shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an operation id is 32 hexadecimal digits")]
pub struct OperationIdError;

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
    /// The path as sent, parameters filled in, after [`normal_path`].
    Path,
    /// A header by which the service chooses what a request is about (a tenant, `X-Original-URL`): all of its
    /// values as sent, in their order. Absent is not empty.
    Header(HeaderName),
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
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

/// Where a key was used. Host, path and headers are given as sent.
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
/// SHA-256 (HMAC-SHA-256 with a secret), cut to 128 bits. Parts may be in any order, and repeat.
pub fn operation_id(
    secret: Option<&Secret>,
    parts: &[ScopePart],
    scope: &Scope<'_>,
    key: &Key,
) -> OperationId {
    identify(secret, &encoding::of_request(parts, scope, key))
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
    identify(secret, &encoding::of_namespace(namespace, principal, key))
}

fn identify(secret: Option<&Secret>, encoded: &[u8]) -> OperationId {
    let digest: [u8; 32] = match secret {
        Some(secret) => secret.digest(encoded),
        None => Sha256::digest(encoded).into(),
    };
    let (id, _) = digest.split_first_chunk().expect("32 bytes begin with 16");
    OperationId(*id)
}

#[cfg(test)]
mod tests;
