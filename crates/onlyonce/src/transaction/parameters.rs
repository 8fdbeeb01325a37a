//! What `begin` is told of an operation.

use crate::Operation;
use crate::hex;

#[derive(Debug)]
pub(super) struct Parameters {
    pub(super) scope: String,
    /// The digest of the principal, in hexadecimal digits.
    pub(super) principal: String,
    pub(super) key: String,
    pub(super) fingerprint: Vec<u8>,
    pub(super) ttl_ms: f64,
}

impl Parameters {
    pub(super) fn of(operation: &Operation) -> Self {
        let (scope, principal, key, policy) = operation.parts();
        let fingerprint = operation.fingerprint();
        Self {
            scope: scope.to_owned(),
            principal: hex::encode(principal.as_bytes()),
            key: key.as_str().to_owned(),
            fingerprint: [&[fingerprint.version][..], &fingerprint.canonical].concat(),
            ttl_ms: policy.ttl().as_secs_f64() * 1000.0,
        }
    }
}
