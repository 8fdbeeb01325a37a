//! The audit trail.

use onlyonce::store::audit::AuditOptions;

use super::error::Remarks;
use super::field::Field;
use super::names::AUDIT;
use super::{Config, StoreUrl};

pub(super) fn read(field: Field<'_>) -> Result<AuditOptions, Remarks> {
    let mut options = AuditOptions::default();
    field.each(&AUDIT, |field| {
        options.keep = field.duration_above_zero()?;
        Ok(())
    })?;
    Ok(options)
}

impl Config {
    /// Whether the store can keep a trail. Checked when a file is read and when flags are added.
    pub(super) fn check_audit(&self) -> Result<(), AuditError> {
        match (&self.audit, &self.store) {
            (Some(_), StoreUrl::Redis(_)) => Err(AuditError::Redis),
            _ => Ok(()),
        }
    }
}

/// Why the store keeps no trail. Use another one, or remove `[audit]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// It never will.
    #[error(
        "Redis alone keeps no audit trail: it is best effort, and its memory is bounded; use sqlite:, postgres: or dynamodb:, or remove [audit]"
    )]
    Redis,
}
