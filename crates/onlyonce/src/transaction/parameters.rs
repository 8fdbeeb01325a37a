//! What `begin` is told of an operation.

#[cfg(any(feature = "sqlite", feature = "sqlx"))]
use sha2::{Digest, Sha256};

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
pub(crate) struct Parameters {
    pub(crate) scope: String,
    /// The digest of the principal, in hexadecimal digits.
    pub(crate) principal: String,
    pub(crate) key: String,
    pub(crate) fingerprint: Vec<u8>,
    pub(crate) ttl_ms: f64,
}

impl Parameters {
    pub(crate) fn of(operation: &Operation) -> Self {
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

    /// The id of the operation: each part with its length in front of it, so that no two operations are hashed from one
    /// text. It is the same in SQLite and in Postgres, where the function `operation_id` makes it.
    #[cfg(any(feature = "sqlite", feature = "sqlx"))]
    pub(crate) fn operation_id(&self) -> String {
        let mut text = "onlyonce transaction 1".to_owned();
        for part in [&self.scope, &self.principal, &self.key] {
            text += &format!(" {}:{part}", part.len());
        }
        let digest: [u8; 32] = Sha256::digest(text).into();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        hex::uuid_text(id)
    }
}

#[cfg(all(test, any(feature = "sqlite", feature = "sqlx")))]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_the_id_that_it_has_in_postgres() {
        let asked = Parameters {
            scope: "POST /charges".to_owned(),
            principal: "acct_ü".to_owned(),
            key: "order-4711".to_owned(),
            fingerprint: Vec::new(),
            ttl_ms: 0.0,
        };
        assert_eq!(asked.operation_id(), "34ff4c66-aaf9-e349-1b35-23e2c54e5e87");
    }
}

/// The bytes that the database compares. All fingerprints that are not to be compared are one, for each spelling of a path.
pub(crate) fn compared(fingerprint: &Fingerprint) -> Vec<u8> {
    match fingerprint.version {
        Fingerprint::NONE => [&[Fingerprint::NONE][..], fingerprint.spelling()].concat(),
        version => [&[version][..], &fingerprint.canonical].concat(),
    }
}
