//! Whether a caller may still be told what its record says: the credentials that it had may have been revoked.

use std::sync::Arc;

use tokio::time::timeout;

use super::Refusal;
use super::any_store::BoxFuture;
use crate::policy::Policy;
use crate::record::Response;

/// What an authorizer says of the caller of a request. A layer takes one with `OnceLayer::with_authorizer`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Permission {
    /// The credentials of the caller hold.
    Granted,
    /// They do not, and the caller gets this answer instead: a 401 or 403, as a rule. Nothing of the record is in it.
    Refused(Arc<Response>),
    /// It cannot be told. The caller is asked to try again, and is told nothing of the record.
    Unknown,
}

/// A question that is asked when it is polled.
pub(crate) type Asked = BoxFuture<'static, Permission>;

impl Refusal {
    /// What the caller gets: this, if it says nothing of the record or the caller may hear it.
    pub(crate) async fn permitted(self, asked: Option<Asked>, policy: &Policy) -> Self {
        match self.tells_of_record() {
            true => refused_permission(asked, policy).await.unwrap_or(self),
            false => self,
        }
    }

    /// That a request is still running says nothing of its outcome, and was true when its caller sent it, moments ago.
    fn tells_of_record(&self) -> bool {
        matches!(self, Self::Replay(_) | Self::Reused | Self::Respelled | Self::Unknown { .. })
    }
}

/// What a caller gets that may not be told of its record; `None` if it may.
pub(crate) async fn refused_permission(asked: Option<Asked>, policy: &Policy) -> Option<Refusal> {
    // In a box, so that the future of a request that needs no permission is small.
    match Box::pin(timeout(policy.upstream_timeout(), asked?)).await {
        Ok(Permission::Granted) => None,
        Ok(Permission::Refused(response)) => Some(Refusal::Unauthorized(response)),
        Ok(Permission::Unknown) | Err(_) => Some(Refusal::AuthorizationUnknown),
    }
}
