//! What operators do: find operations, list them, and settle, release or forget them.
//!
//! 1. Every change names who makes it and why ([`By`]), and is told to the [events](Once::events).
//! 2. A change is guarded by the exact revision that was read. If the owner, a reconciler or another operator was
//!    faster, nothing is changed, and the operator looks again: what was found out about one attempt says nothing
//!    about the next.
//! 3. *Settle* and *release* are for unknown outcomes, *forget* and *erase* are for completed ones. Every other state
//!    forbids them.
//! 4. Whoever releases or forgets an operation lets its key run again, and vouches for that.
//!
//! ```
//! # #[cfg(feature = "memory")] {
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! use onlyonce::record::{StateKind, StateSet};
//! use onlyonce::{Once, OperationFilter, store::memory::MemoryStore};
//!
//! let once = Once::new(MemoryStore::new());
//! let unknown = OperationFilter { states: StateSet::of(&[StateKind::Unknown]), ..OperationFilter::default() };
//! let listed = once.operations().list(&unknown, None, 50).await?;
//! assert!(listed.operations.is_empty());
//! # Ok::<(), onlyonce::OperateError>(())
//! # })?; }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod audit;
mod bulk;
mod filter;
mod selection;

use std::sync::Arc;
use std::time::Duration;

use tracing::info;

pub use self::bulk::{Bulk, BulkRefusal};
pub use self::filter::OperationFilter;
pub use self::selection::{RevisionDigest, RevisionDigestError, Selection};

use super::events::event_of;
use super::{Inner, Once};
use crate::clock::StoreTime;
use crate::engine::Write;
use crate::event::By;
use crate::key::Key;
use crate::policy::Policy;
use crate::problem;
use crate::record::{Record, Response, SettledBy, State, StateKind};
use crate::scope::{IdPrefix, OperationId, Scope, operation_id};
use crate::store::{Census, Cursor, Fault, Scan, StoreError, Swap};

/// The operations of a store, for operators. Made by [`Once::operations`].
#[derive(Clone, Debug)]
pub struct Operations {
    inner: Arc<Inner>,
}

impl Once {
    /// The operations in the store: see [`Operations`].
    pub fn operations(&self) -> Operations {
        Operations { inner: self.inner.clone() }
    }
}

/// An operation as the store holds it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredOperation {
    /// Its id.
    pub id: OperationId,
    /// Its record.
    pub record: Record,
    /// The trusted time when it was read.
    pub now: StoreTime,
}

impl StoredOperation {
    /// An operation with this record, read at `now`.
    pub fn new(id: OperationId, record: Record, now: StoreTime) -> Self {
        Self { id, record, now }
    }

    /// Names this state of the record. It is another one after every change, so that a change can be asked for of
    /// exactly what was seen ([`Operations::change_seen`]).
    pub fn revision(&self) -> RevisionDigest {
        RevisionDigest::of(self.record.revision())
    }

    /// From when on an unknown operation may be released without force: its owner can no longer be sending.
    pub fn releasable_at(&self) -> Option<StoreTime> {
        match self.record.state {
            State::Unknown { since } => Some(since.plus_ms(self.record.quiet_ms)),
            _ => None,
        }
    }
}

/// A page of operations.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperationPage {
    /// At most as many as asked for. A page may have fewer and a `next`, because one page looks at a bounded number of
    /// records.
    pub operations: Vec<StoredOperation>,
    /// Where the next page starts; `None` after the last.
    pub next: Option<Cursor>,
    /// How many records were looked at.
    pub searched: usize,
    /// There are more operations of this key than are listed.
    pub is_cut: bool,
}

/// A change that an operator makes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Action {
    /// The outcome of an unknown operation is this answer: every retry gets it.
    Settle(Arc<Response>),
    /// The unknown operation failed for good: every retry is told so, and to use a new key.
    Fail,
    /// The unknown operation was not executed: the next retry runs it.
    Release {
        /// Also while its owner may still be sending.
        force: bool,
    },
    /// The answer of a completed operation and the text of its key are removed: its outcome is kept, and a retry gets 410
    /// instead of the answer. Other nodes may replay it from their memory for a minute. What backups and the logs of the
    /// database still have is not reached.
    Erase,
    /// The record of a completed operation is deleted: the next request with its key runs it again. Other nodes may replay
    /// the old answer from their memory for a minute; and from a Redis filter until it expires, if this store was opened
    /// without that filter.
    Forget,
}

/// Why an operation was not found or not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperateError {
    /// Look at the id: the record may have expired.
    #[error("there is no operation with this id")]
    NotFound,
    /// Choose an action that this state allows.
    #[error("the operation is {}: {}", state.name(), forbidden(*state))]
    StateForbids {
        /// The state that it is in.
        state: StateKind,
    },
    /// Wait, or force it if the first attempt can no longer arrive.
    #[error("the first attempt may still arrive until {}", at.as_ms())]
    TooEarly {
        /// From when on it is allowed.
        at: StoreTime,
    },
    /// Look at the operation again, and decide anew.
    #[error("the operation has changed since it was read; look at it again")]
    Changed,
    /// Open the store with an audit trail. What happened before that was not kept.
    #[error("this store keeps no audit trail")]
    NoTrail,
    /// The store gave no answer. The change may have been made if the fault is unsure; look before you repeat it.
    #[error("the store gave no answer")]
    Store(#[from] Fault),
}

/// What is allowed instead.
fn forbidden(state: StateKind) -> &'static str {
    match state {
        StateKind::Running => "wait until it ends or its lease is over",
        StateKind::Unknown => "settle or release it",
        StateKind::Released => "the next request with its key runs it",
        StateKind::Completed => "it has an answer; forget it to let its key run again",
    }
}

impl Operations {
    /// The operation with this id.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn find(&self, id: OperationId) -> Result<Option<StoredOperation>, OperateError> {
        let seen = self.inner.store.load(id).await.map_err(unread)?;
        let now = seen.now;
        Ok(seen.record.map(|record| StoredOperation { id, record, now }))
    }

    /// The operation that `key` names for a route with this policy, in this scope.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn find_in(
        &self,
        policy: &Policy,
        scope: &Scope<'_>,
        key: &Key,
    ) -> Result<Option<StoredOperation>, OperateError> {
        let secret = self.inner.secret.as_ref();
        self.find(operation_id(secret, &policy.id_scope(), scope, key)).await
    }

    /// The operations that match `filter`, at most `limit`. With a key in the filter all of them are found at once;
    /// else they are searched for page by page, from `after` on.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn list(
        &self,
        filter: &OperationFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<OperationPage, OperateError> {
        match &filter.key {
            Some(key) => self.list_key(filter, key).await,
            None => self.search(filter, after, limit.clamp(1, PAGE_MAX)).await,
        }
    }

    /// How many operations there are, by the states that need attention.
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn census(&self) -> Result<Census, OperateError> {
        self.inner.store.census().await.map_err(unread)
    }

    /// Deletes what has expired, now, and returns how many records that were.
    ///
    /// # Errors
    /// If the store gives no answer. What was deleted before stays deleted.
    pub async fn sweep(&self) -> Result<usize, OperateError> {
        Ok(self.inner.sweep().await?)
    }

    /// Changes one operation, as it is now.
    ///
    /// # Errors
    /// If its state forbids the change, or the store gives no answer.
    pub async fn change(
        &self,
        id: OperationId,
        action: &Action,
        by: &By,
    ) -> Result<(), OperateError> {
        self.step(id, None, action, by, false).await.map(drop)
    }

    /// Changes an operation that is exactly as it was read.
    ///
    /// # Errors
    /// If it is not, if its state forbids the change, or if the store gives no answer.
    pub async fn change_seen(
        &self,
        operation: &StoredOperation,
        action: &Action,
        by: &By,
    ) -> Result<(), OperateError> {
        let StoredOperation { id, record, .. } = operation;
        let write = self.inner.with_record(write(action, operation)?, record, Some(by));
        let Swap::Done(_) = self.swap(*id, &write).await? else {
            return Err(OperateError::Changed);
        };
        self.inner.cache.remove(*id);
        let told = event_of(&write);
        let (who, why) = (by.who(), by.why());
        info!(operation = %id, change = told.0.name(), who, why, "changed by an operator");
        self.inner.tell_written(*id, record, told, Some(by));
        Ok(())
    }

    /// Repeats the identical write while nobody knows whether it was made: that is harmless. A copy that was not done says
    /// nothing about one that may have been.
    async fn swap(&self, id: OperationId, write: &Write) -> Result<Swap, Fault> {
        let mut unsure = None;
        for _ in 0..TRIES_MAX {
            match self.inner.store.swap(id, write.clone()).await {
                Ok(swap) => return Ok(swap),
                Err(fault @ Fault::NotDone(_)) if unsure.is_none() => return Err(fault),
                Err(Fault::NotDone(error) | Fault::Unsure(error)) => unsure = Some(error),
            }
            tokio::time::sleep(UNSURE_PAUSE).await;
        }
        Err(unsure.map_or(Fault::NotDone(StoreError::Busy), Fault::Unsure))
    }

    async fn list_key(
        &self,
        filter: &OperationFilter,
        key: &str,
    ) -> Result<OperationPage, OperateError> {
        let prefix = IdPrefix::of_key(self.inner.secret.as_ref(), key);
        let records =
            self.inner.store.with_prefix(prefix, KEY_OPERATIONS_MAX).await.map_err(unread)?;
        let (now, searched) = (self.inner.trusted_now(), records.len());
        let operations = matching(filter, records, now);
        let is_cut = searched >= KEY_OPERATIONS_MAX;
        Ok(OperationPage { operations, next: None, searched, is_cut })
    }

    async fn search(
        &self,
        filter: &OperationFilter,
        mut after: Option<Cursor>,
        limit: usize,
    ) -> Result<OperationPage, OperateError> {
        let (mut operations, mut searched) = (Vec::new(), 0);
        for _ in 0..SCANS_MAX {
            // Never more than are still wanted: a cursor exists only at the end of a page.
            let wanted = limit - operations.len();
            let page = self.inner.store.scan(Scan { states: filter.states, after, limit: wanted });
            let page = page.await.map_err(unread)?;
            // A store may look at as many records as are wanted, and find none of them in these states.
            searched += if page.next.is_some() { wanted } else { page.records.len() };
            operations.extend(matching(filter, page.records, self.inner.trusted_now()));
            after = page.next;
            if after.is_none() || operations.len() >= limit || searched >= SEARCHED_MAX {
                break;
            }
        }
        Ok(OperationPage { operations, next: after, searched, is_cut: false })
    }
}

fn matching(
    filter: &OperationFilter,
    records: Vec<(OperationId, Record)>,
    now: StoreTime,
) -> Vec<StoredOperation> {
    let operations = records.into_iter().map(|(id, record)| StoredOperation { id, record, now });
    operations.filter(|operation| filter.matches(operation)).collect()
}

/// A reading that got no answer has changed nothing.
fn unread(fault: Fault) -> OperateError {
    let (Fault::NotDone(error) | Fault::Unsure(error)) = fault;
    OperateError::Store(Fault::NotDone(error))
}

/// The write that `action` makes of the operation.
fn write(action: &Action, operation: &StoredOperation) -> Result<Write, OperateError> {
    let StoredOperation { record, now, .. } = operation;
    if record.is_expired(*now) {
        return Err(OperateError::NotFound);
    }
    let write = match action {
        Action::Settle(response) => {
            Write::settle_for(record, SettledBy::Operator, response.clone())
        }
        Action::Fail => {
            let response = Arc::new(problem::settled_as_failed());
            Write::settle_for(record, SettledBy::Operator, response)
        }
        Action::Release { force } => Write::release_for(record, *now, *force),
        Action::Erase => Write::erase(record),
        Action::Forget => Write::forget(record),
    };
    write.ok_or_else(|| match (action, operation.releasable_at()) {
        (Action::Release { .. }, Some(at)) => OperateError::TooEarly { at },
        _ => OperateError::StateForbids { state: record.state.kind() },
    })
}

/// Operations in a page.
const PAGE_MAX: usize = 1_000;
/// Records that one page looks at.
const SEARCHED_MAX: usize = 5_000;
/// Calls of the store for one page.
const SCANS_MAX: usize = 100;
/// Operations that are listed of one key.
const KEY_OPERATIONS_MAX: usize = 1_000;
/// How often a write that is unsure is tried.
const TRIES_MAX: usize = 5;
const UNSURE_PAUSE: Duration = Duration::from_millis(50);
