//! What `begin` is told of an operation.

use crate::Operation;
use crate::fingerprint::Fingerprint;
use crate::hex;
#[cfg(all(feature = "sqlx", feature = "tower"))]
use crate::{
    Policy,
    key::Key,
    scope::{OperationId, Principal, ScopePart},
};

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
        Self {
            scope: scope.to_owned(),
            principal: hex::encode(principal.as_bytes()),
            key: key.as_str().to_owned(),
            fingerprint: compared(&operation.fingerprint()),
            ttl_ms: policy.ttl().as_secs_f64() * 1000.0,
        }
    }

    /// Of a request, which the id names within the scope of the policy.
    #[cfg(all(feature = "sqlx", feature = "tower"))]
    pub(super) fn of_request(
        policy: &Policy,
        id: OperationId,
        who: &Principal,
        key: &Key,
        fingerprint: &Fingerprint,
    ) -> Self {
        let is_by_principal = policy.scope().contains(&ScopePart::Principal);
        Self {
            scope: format!("http:{id}"),
            principal: if is_by_principal { hex::encode(who.as_bytes()) } else { "any".to_owned() },
            key: key.as_str().to_owned(),
            fingerprint: compared(fingerprint),
            ttl_ms: policy.ttl().as_secs_f64() * 1000.0,
        }
    }
}

/// The bytes that the database compares. All fingerprints that are not to be compared are one.
fn compared(fingerprint: &Fingerprint) -> Vec<u8> {
    match fingerprint.version {
        Fingerprint::NONE => vec![Fingerprint::NONE],
        version => [&[version][..], &fingerprint.canonical].concat(),
    }
}
