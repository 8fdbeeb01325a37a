//! The audit trail, for operators.

use super::{OperateError, Operations, unread};
use crate::event::EventKind;
use crate::once::any_store::BoundedTrail;
use crate::scope::{KeyDigest, OperationId};
use crate::store::audit::{self, EntryPage, EntryQuery, Head, Trail, Verified};

impl Operations {
    /// Whether the store keeps an audit trail.
    pub fn is_audited(&self) -> bool {
        self.inner.store.trail().is_some()
    }

    /// The entries of the audit trail that match, by time. What was only read is in it a moment later.
    ///
    /// # Errors
    /// If there is no trail, or the store gives no answer.
    pub async fn audit(&self, query: EntryQuery) -> Result<EntryPage, OperateError> {
        self.trail()?.entries(query).await.map_err(unread)
    }

    /// What the audit trail has instead of this key.
    pub fn key_digest(&self, key: &str) -> KeyDigest {
        KeyDigest::of_key(self.inner.secret.as_ref(), key)
    }

    /// How often an operation was replayed, as far as the audit trail reaches back.
    ///
    /// # Errors
    /// If there is no trail, or the store gives no answer.
    pub async fn replays(&self, id: OperationId) -> Result<u64, OperateError> {
        self.trail()?.count(id, EventKind::Replayed).await.map_err(unread)
    }

    /// Where the chains of the audit trail end. Keep them elsewhere, and compare later.
    ///
    /// # Errors
    /// If there is no trail, or the store gives no answer.
    pub async fn audit_heads(&self) -> Result<Vec<Head>, OperateError> {
        self.trail()?.heads().await.map_err(unread)
    }

    /// Reads the whole audit trail and tells where it was changed; also against heads that were kept elsewhere.
    ///
    /// # Errors
    /// If there is no trail, or the store gives no answer.
    pub async fn verify_audit(&self, kept: &[Head]) -> Result<Verified, OperateError> {
        audit::verify(&self.trail()?, kept).await.map_err(unread)
    }

    fn trail(&self) -> Result<BoundedTrail<'_>, OperateError> {
        self.inner.store.trail().ok_or(OperateError::NoTrail)
    }
}
