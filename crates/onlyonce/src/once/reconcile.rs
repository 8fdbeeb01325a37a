//! Asking what became of an operation whose outcome is unknown.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use http::HeaderMap;
use tokio::time::timeout;

use super::any_store::BoxFuture;
use super::{Ask, Inner, Refusal};
use crate::clock::StoreTime;
use crate::engine::Write;
use crate::policy::{Absent, Policy, Recovery};
use crate::record::{Record, Response, Revision, SettledBy, State};
use crate::scope::OperationId;
use crate::store::Seen;

/// Asks a service what became of an operation. A layer takes one with `OnceLayer::with_reconciler`.
pub trait Reconciler: Send + Sync + 'static {
    /// Asks what became of the operation. A wrong [`Finding::Found`] becomes the answer of every retry; a wrong
    /// [`Finding::Absent`] may run the operation twice. When in doubt: [`Finding::Unclear`].
    fn ask<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Finding>;

    /// Whether the reconciler has credentials of its own, so that it may be asked in the background too.
    fn asks_by_itself(&self) -> bool {
        false
    }
}

/// A question about an operation: about the request that was sent, not about the retry that causes the question.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Question<'a> {
    /// The operation.
    pub id: OperationId,
    /// The key of the operation.
    pub key: &'a str,
    /// What `OnceLayer::with_sent_as` said when the request was sent.
    pub sent_as: &'a str,
    /// The `Host` that the request was sent with.
    pub host: &'a str,
    /// The path that the request was sent to, percent-encoded as it was. Empty if the route had nobody to ask
    /// when the request was sent: then what was sent is not known.
    pub path: &'a str,
    /// The headers of the client that asks again; `None` in the background.
    pub headers: Option<&'a HeaderMap>,
}

impl<'a> Question<'a> {
    /// A question about this record; `key` is that of the operation, which the record may not tell.
    pub(super) fn about(
        id: OperationId,
        record: &'a Record,
        key: &'a str,
        headers: Option<&'a HeaderMap>,
    ) -> Self {
        let (sent_as, target) = record.target.split_once(' ').unwrap_or_default();
        // No path has a space.
        let (host, path) = target.rsplit_once(' ').unwrap_or_default();
        Self { id, key, sent_as, host, path, headers }
    }
}

/// The answer to a question about an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// It was executed, and this is what retries are answered with.
    Found(Arc<Response>),
    /// Nobody has heard of it.
    Absent,
    /// It cannot be told.
    Unclear,
}

/// A reconciler, and the headers of the client on whose behalf it asks.
pub(crate) struct Asking {
    pub(crate) reconciler: Arc<dyn Reconciler>,
    pub(crate) headers: HeaderMap,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Asking(..)")
    }
}

impl Inner {
    /// On a client's retry: asks about the unknown operation, and settles or releases it if the finding allows that.
    pub(super) async fn reconcile(
        &self,
        ask: &Ask,
        seen: &Seen,
        since: StoreTime,
    ) -> Result<(), Refusal> {
        let unknown = Refusal::Unknown { since };
        let (Some(asking), Some(record)) = (&ask.asking, &seen.record) else {
            return Err(unknown);
        };
        let key = record.key.as_sent().unwrap_or_else(|| ask.key.as_str());
        let question = Question::about(ask.id, record, key, Some(&asking.headers));
        let finding = find(&*asking.reconciler, question, &ask.policy).await;
        match self.conclusion(ask.id, record, &ask.policy, seen.now, finding) {
            Some(write) => self.clear(ask, seen, write).await,
            None => Err(unknown),
        }
    }

    /// The write that a finding allows at `now`, in trusted time.
    pub(super) fn conclusion(
        &self,
        id: OperationId,
        record: &Record,
        policy: &Policy,
        now: StoreTime,
        finding: Finding,
    ) -> Option<Write> {
        let State::Unknown { since } = record.state else {
            return None;
        };
        let Recovery::Reconcile { absent, quiet } = policy.recovery() else {
            return None;
        };
        match finding {
            Finding::Found(response) => {
                Write::settle_for(record, SettledBy::Reconcile, policy.stored(response))
            }
            Finding::Absent if absent == Absent::Release && since.plus(quiet) <= now => {
                let is_second = self.absences.is_second(id, record.revision());
                is_second.then(|| Write::release_for(record, now, false)).flatten()
            }
            Finding::Absent | Finding::Unclear => None,
        }
    }
}

/// Asks within the route's time. A panic is no answer: the background thread must outlive whomever it asks.
pub(super) async fn find(
    reconciler: &dyn Reconciler,
    question: Question<'_>,
    policy: &Policy,
) -> Finding {
    let asking = AssertUnwindSafe(async { reconciler.ask(question).await }).catch_unwind();
    let finding = timeout(policy.upstream_timeout(), asking).await;
    finding.map_or(Finding::Unclear, |found| found.unwrap_or(Finding::Unclear))
}

/// Operations that were once found absent. Only a second absence counts.
#[derive(Debug, Default)]
pub(super) struct Absences(Mutex<HashMap<OperationId, Revision>>);

impl Absences {
    fn is_second(&self, id: OperationId, revision: Revision) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= ABSENCES_MAX {
            // Forgetting means asking once more, which is safe.
            seen.clear();
        }
        seen.insert(id, revision) == Some(revision)
    }
}

const ABSENCES_MAX: usize = 10_000;
