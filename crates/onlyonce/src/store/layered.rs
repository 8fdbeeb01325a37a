//! Redis in front of the store that decides: a filter that answers replays.
//!
//! 1. The store behind Redis is the *authority*. Everything is written there, and only its answer ever lets an
//!    operation run.
//! 2. A record that the authority has completed is copied to Redis within a second, if its body has at most 1 MiB. Until it
//!    expires, by the authority's clock, the copy may answer a retry of the same request: a completed record does not change.
//!    It counts only for the authority that has the record ([`Maintain::identity`]): another store may have one with its id.
//! 3. An older copy never replaces a newer one. Copies are signed, with the deployment's secret where
//!    there is one. A copy whose signature is wrong is not used.
//! 4. A call of Redis takes at most [`FILTER_WAIT`]. After one that took longer, or failed, there are none
//!    for a second and more, until a new connection has told its time. Redis lost, flushed, stale or hung
//!    changes how long an answer takes, and no answer.
//! 5. The authority's time is estimated from its last answer and this node's boot clock. Before its first answer, and
//!    after a minute without one, the authority is asked.
//!
//! Only `claim` and `load` look in Redis. When a completed record is changed, its copy is deleted from Redis; where Redis
//! does not confirm that, this node does not use the copy any more, and others may: an operator's *forget* while Redis is
//! away leaves a copy that other nodes replay until it expires. That is logged.
//!
//! The filter takes load off the authority where nodes are many and the same keys come back to other nodes. An answer
//! from the cache of [`Once`](crate::Once) is faster still. The cost is a call of Redis for each fresh key.

mod audit;
mod authority_time;
mod entry;
mod filter;
mod filter_writes;
mod stale_entries;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tracing::warn;

use self::authority_time::AuthorityTime;
use self::entry::{EntryId, Found, Seal, completed_at};
pub use self::filter::FILTER_WAIT;
use self::filter::{Filter, count};
use self::filter_writes::{FilterWrites, Job};
use self::stale_entries::{StaleEntries, StaleMark};
use super::audit::{Audit, Calling};
use super::redis::{Keys, RedisOpenError};
use super::{
    Beat, Census, Draft, Fault, Guard, Inspect, Lease, Maintain, Meter, Next, Page, Scan, Seen,
    Store, StoreError, StoreIdentity, StoreLimits, Swap, Swept, Watch,
};
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::record::{Record, StateKind, Token};
use crate::scope::{IdPrefix, OperationId};
use crate::velocity::Allowance;

/// A store with Redis in front of it. A clone is the same.
pub struct Layered<S> {
    /// Declared first, so that it is dropped first: its thread uses the authority too.
    writes: Arc<FilterWrites>,
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    authority: S,
    filter: Filter,
    authority_time: AuthorityTime,
    stale: Arc<StaleEntries>,
    clock: Arc<dyn Clock>,
    /// Until then, on the system's boot clock, the first connection to Redis may still be under way.
    up_by: Duration,
}

/// How a filter is opened.
#[derive(Clone)]
pub struct LayeredOptions {
    prefix: String,
    secret: Vec<u8>,
    clock: Arc<dyn Clock>,
}

impl LayeredOptions {
    /// The prefix `oo`, no secret, and the system's clock.
    pub fn new() -> Self {
        Self { prefix: "oo".to_owned(), secret: Vec::new(), clock: Arc::new(SystemClock) }
    }

    /// What every name in Redis begins with: 1 to 64 letters, digits and `_ - . :`. Deployments that share
    /// a Redis must not share a prefix, unless they share the authority too.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The deployment's secret. Without one, whoever can write to Redis can make up an answer.
    #[must_use]
    pub fn with_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = secret.into();
        self
    }

    /// Where this node's boot clock comes from. Another one than the system's is for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

impl Default for LayeredOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for LayeredOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("LayeredOptions");
        shown.field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// What a filter did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterCounts {
    /// Answers from Redis.
    pub hits: u64,
    /// Answers for which the authority was asked.
    pub misses: u64,
    /// Entries that did not verify: damaged, or not written by any node with this secret.
    pub unreadable: u64,
    /// Calls that Redis did not answer in time, or refused.
    pub unanswered: u64,
    /// Entries that were written.
    pub kept: u64,
    /// Entries that were not written, because the queue was full, it was too late, or the answer is too large.
    pub dropped: u64,
}

impl<S: Watch + Maintain> Layered<S> {
    /// Puts the Redis at `url` in front of `authority`. It does not have to be up.
    ///
    /// # Errors
    /// If the address or the prefix does not read, or there is no thread to be had.
    pub fn new(authority: S, url: &str, options: LayeredOptions) -> Result<Self, RedisOpenError> {
        let LayeredOptions { prefix, secret, clock } = options;
        let filter = Filter::open(url, Keys::new(&prefix)?, Seal::new(&secret))?;
        let (authority_time, stale) = (AuthorityTime::default(), Arc::default());
        let up_by = SystemClock.boot() + UP_WAIT_MAX;
        let inner = Arc::new(Inner { authority, filter, authority_time, stale, clock, up_by });
        if inner.authority.identity().is_none() {
            warn!("the Redis filter is not used: {NAMELESS}");
        }
        Ok(Self { writes: Arc::new(FilterWrites::start(&inner)?), inner })
    }

    /// The store that decides.
    pub fn authority(&self) -> &S {
        &self.inner.authority
    }

    /// Whether Redis is asked at all now.
    pub fn is_filter_up(&self) -> bool {
        self.inner.filter.is_up()
    }

    /// What the filter did so far.
    pub fn counts(&self) -> FilterCounts {
        let counters = &self.inner.filter.counters;
        FilterCounts {
            hits: counters.hits.load(Ordering::Relaxed),
            misses: counters.misses.load(Ordering::Relaxed),
            unreadable: counters.unreadable.load(Ordering::Relaxed),
            unanswered: counters.unanswered.load(Ordering::Relaxed),
            kept: counters.kept.load(Ordering::Relaxed),
            dropped: counters.dropped.load(Ordering::Relaxed),
        }
    }

    /// The copy that Redis has of `id`, if it has not expired and `suits`.
    async fn replayed(
        &self,
        id: OperationId,
        suits: impl Fn(&Record, StoreTime) -> bool + Send,
    ) -> Option<Seen> {
        let inner = &self.inner;
        let authority = inner.authority.identity()?;
        inner.authority_time.now(inner.clock.boot())?;
        // Asked before Redis is: a mark may be cleared while an answer from before the deletion is on its way.
        if inner.stale.is_marked(id) {
            return None;
        }
        let entry = EntryId { authority, id };
        let found = inner.filter.find(entry).await;
        if found == Some(Found::Unreadable) {
            let (done, _) = oneshot::channel();
            self.writes.send(Job::Changed(entry, None, done));
        }
        let Some(Found::Entry(record, expires_at)) = found else {
            return None;
        };
        // The call of Redis took some time: the copy must be alive after it.
        let now = inner.authority_time.now(inner.clock.boot())?;
        let is_alive = expires_at > now.latest && suits(&record, expires_at);
        if !is_alive || !inner.stale.may_use(id, completed_at(&record)?) {
            return None;
        }
        count(&inner.filter.counters.hits);
        Some(Seen { record: Some(*record), mine: false, now: now.earliest })
    }

    /// Passes on what the authority answered, and copies a completed record to Redis.
    fn repaired(&self, id: OperationId, seen: Seen, asked: Asked) -> Seen {
        count(&self.inner.filter.counters.misses);
        if let Some(record) = seen.record.as_ref().filter(|record| completed_at(record).is_some())
            && self.inner.filter.is_up()
            && let Some(authority) = self.inner.still(asked.authority)
        {
            let entry = EntryId { authority, id };
            self.offer(Job::Read(entry, Box::new(record.clone()), asked.at));
        }
        seen
    }

    /// Who is asked now.
    fn asking(&self) -> Asked {
        Asked { at: SystemClock.boot(), authority: self.inner.authority.identity() }
    }

    /// Queues a copy, if there is room for it.
    fn offer(&self, job: Job) {
        if !self.writes.send(job) {
            count(&self.inner.filter.counters.dropped);
        }
    }

    /// The same as [`forget`](Self::forget), for a process that may have just been started: its connection to Redis may
    /// need a moment.
    async fn forget_when_up(&self, id: OperationId) {
        let up = async {
            while !self.is_filter_up() && SystemClock.boot() < self.inner.up_by {
                sleep(UP_PAUSE).await;
            }
        };
        up.await;
        self.forget(id, None).await;
    }

    /// Has the copy of a record that was changed deleted. The future tells whether Redis has confirmed it soon; the mark is
    /// cleared when it has, also if nobody waits for that.
    fn forget(
        &self,
        id: OperationId,
        mark: Option<StaleMark>,
    ) -> impl Future<Output = bool> + Send + 'static {
        let (done, forgotten) = oneshot::channel();
        if let Some(authority) = self.inner.authority.identity() {
            self.writes.send(Job::Changed(EntryId { authority, id }, mark, done));
        } else if let Some(mark) = mark {
            // No node uses a filter for this authority.
            mark.clear();
            let _ = done.send(true);
        }
        async move { matches!(timeout(FORGET_WAIT, forgotten).await, Ok(Ok(true))) }
    }
}

impl<S: Maintain> Meter for Inner<S> {
    fn admit<'a>(&'a self, allowances: &'a [Allowance]) -> Calling<'a, Option<Duration>> {
        Box::pin(async move {
            match self.authority.identity() {
                Some(authority) => self.filter.admit(authority, allowances).await,
                None => Err(Fault::NotDone(StoreError::Unavailable(NAMELESS.into()))),
            }
        })
    }
}

impl<S: Maintain> Inner<S> {
    /// The authority that was asked, if the store still leads to it: what another one said is not its answer.
    fn still(&self, asked: Option<StoreIdentity>) -> Option<StoreIdentity> {
        asked.filter(|asked| self.authority.identity() == Some(*asked))
    }

    async fn load_authority(&self, id: OperationId) -> Result<Seen, Fault> {
        let asked_at = self.clock.boot();
        let seen = self.authority.load(id).await?;
        self.authority_time.observe(seen.now, asked_at, self.clock.boot());
        Ok(seen)
    }
}

impl<S> Clone for Layered<S> {
    fn clone(&self) -> Self {
        Self { writes: self.writes.clone(), inner: self.inner.clone() }
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for Layered<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Layered");
        shown.field("authority", &self.inner.authority);
        shown.field("is_filter_up", &self.inner.filter.is_up()).finish_non_exhaustive()
    }
}

impl<S: Watch + Maintain> Store for Layered<S> {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.claim_by(draft, |draft| self.inner.authority.claim(draft)).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        if let Some(seen) = self.replayed(id, |_, _| true).await {
            return Ok(seen);
        }
        let asked = self.asking();
        let seen = self.inner.load_authority(id).await?;
        Ok(self.repaired(id, seen, asked))
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        let kind = SwapKind::of(&guard, &to);
        self.swap_by(id, guard, kind, self.inner.authority.swap(id, guard, to)).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        self.inner.authority.renew(held, lease).await
    }
}

impl<S: Watch + Maintain> Layered<S> {
    /// Claims by asking the authority with `ask`, unless Redis has the answer. An earlier copy of the draft may be on its
    /// way to the authority. While there is a record it inserts nothing: so Redis may answer only if the completed
    /// record outlives the draft's `not_after`.
    async fn claim_by<F: Future<Output = Result<Seen, Fault>> + Send>(
        &self,
        draft: Draft,
        ask: impl FnOnce(Draft) -> F + Send,
    ) -> Result<Seen, Fault> {
        let suits = |record: &Record, expires_at: StoreTime| {
            expires_at > draft.not_after && record.fingerprint.matches(&draft.fingerprint)
        };
        if let Some(seen) = self.replayed(draft.id, suits).await {
            return Ok(seen);
        }
        let (id, asked_at, asked) = (draft.id, self.inner.clock.boot(), self.asking());
        let seen = ask(draft).await?;
        self.inner.authority_time.observe(seen.now, asked_at, self.inner.clock.boot());
        Ok(self.repaired(id, seen, asked))
    }

    /// Swaps by asking the authority with `ask`, and keeps the copy in Redis true.
    async fn swap_by(
        &self,
        id: OperationId,
        guard: Guard,
        kind: SwapKind,
        ask: impl Future<Output = Result<Swap, Fault>> + Send,
    ) -> Result<Swap, Fault> {
        let boot = self.inner.clock.boot();
        let mark = may_change_completed(&guard).then(|| {
            let now = self.inner.authority_time.now(boot).map(|now| now.latest);
            self.inner.stale.mark(id, now)
        });
        // Best effort, before the record is gone: a node that reads it in between must not copy it again.
        if matches!(kind, SwapKind::Forget) {
            self.forget_when_up(id).await;
        }
        let swap = ask.await?;
        match &swap {
            Swap::Stale(seen) => {
                self.inner.authority_time.observe(seen.now, boot, self.inner.clock.boot());
            }
            Swap::Done(_) if matches!(kind, SwapKind::Settle) && self.inner.filter.is_up() => {
                self.offer(Job::Settled(id));
            }
            Swap::Done(_) => {}
        }
        if mark.is_some() {
            let forgotten = self.forget(id, mark);
            // Any other swap is done, and is not made unsure by a queue: this node does not use a marked copy.
            let is_forget = matches!((kind, &swap), (SwapKind::Forget, Swap::Done(_)));
            if is_forget && !forgotten.await {
                warn!(operation = %id, "{UNCONFIRMED}");
            }
        }
        Ok(swap)
    }
}

impl<S: Watch + Maintain> Watch for Layered<S> {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.inner.authority.changed(id)
    }

    fn hears_other_nodes(&self) -> bool {
        self.inner.authority.hears_other_nodes()
    }
}

impl<S: Watch + Maintain> Maintain for Layered<S> {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let asked_at = self.inner.clock.boot();
        let page = self.inner.authority.scan(query).await?;
        self.inner.authority_time.observe(page.now, asked_at, self.inner.clock.boot());
        Ok(page)
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        self.inner.authority.sweep(until, limit).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        self.inner.authority.check_value(name, from, to).await
    }

    fn limits(&self) -> StoreLimits {
        self.inner.authority.limits()
    }

    fn identity(&self) -> Option<StoreIdentity> {
        self.inner.authority.identity()
    }

    /// Redis: the limits of many nodes need no database.
    fn meter(&self) -> Option<&dyn Meter> {
        Some(&*self.inner)
    }
}

impl<S: Watch + Inspect> Inspect for Layered<S> {
    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        self.inner.authority.with_prefix(prefix, limit).await
    }

    async fn census(&self) -> Result<Census, Fault> {
        self.inner.authority.census().await
    }

    /// The authority's.
    fn audit(&self) -> Option<&dyn Audit> {
        self.inner.authority.audit().map(|_| self as _)
    }
}

/// When the authority was asked, on the system's boot clock, and which one it was then.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Duration,
    authority: Option<StoreIdentity>,
}

/// What a swap means for the copy in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwapKind {
    /// The record is completed.
    Settle,
    /// A completed record is deleted or erased before it expires.
    Forget,
    Other,
}

impl SwapKind {
    fn of(guard: &Guard, to: &Next) -> Self {
        match (to, guard) {
            (Next::Completed { .. }, _) => Self::Settle,
            (Next::Absent, Guard::Unchanged(_)) | (Next::Replaced(_), _) => Self::Forget,
            _ => Self::Other,
        }
    }
}

/// An owner's write starts from a running, unknown or released record, of which there is no copy.
fn may_change_completed(guard: &Guard) -> bool {
    match guard {
        Guard::Owner { states, .. } => states.contains(StateKind::Completed),
        Guard::Unchanged(_) => true,
    }
}

const NAMELESS: &str = "the store behind it does not say which one it is";
/// How long a forget waits for the first connection to Redis, from the start on.
const UP_WAIT_MAX: Duration = Duration::from_millis(500);
const UP_PAUSE: Duration = Duration::from_millis(10);
/// How long a forget waits for the deletion of a copy: its place in the queue may be behind many.
const FORGET_WAIT: Duration = Duration::from_secs(1);
const UNCONFIRMED: &str = "the Redis filter did not confirm that it has no copy of the forgotten answer: other nodes may replay it until it expires";
