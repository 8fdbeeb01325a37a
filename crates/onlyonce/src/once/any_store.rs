//! Any store behind one type, with a bound on each call, and with trusted time in its answers.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::events::event_of;
use super::latency::Calls;
use super::store_health::StoreHealth;
use super::trusted_time::TrustedTime;
use crate::clock::{Clock, StoreTime};
use crate::engine::Write;
use crate::event::EventKind;
use crate::record::{Record, Token};
use crate::scope::{IdPrefix, OperationId};
use crate::store::audit::{
    About, Appended, Audit, Calling, ChainRow, EntryPage, EntryQuery, Head, Note, Trail, WriterId,
};
#[cfg(feature = "seal")]
use crate::store::sealed::{Seal, Sealed};
use crate::store::{
    Beat, Census, Draft, Fault, Guard, Inspect, Lease, Maintain, Meter, Next, Page, Scan, Seen,
    Store, StoreError, StoreLimits, Swap, Swept, Watch,
};
use crate::velocity::Allowance;

/// A store as [`Once`](crate::Once) sees it.
pub(crate) struct AnyStore {
    store: Box<dyn DynStore>,
    clock: Arc<dyn Clock>,
    time: TrustedTime,
    health: StoreHealth,
    #[cfg(feature = "seal")]
    pub(super) seal: Seal,
}

impl AnyStore {
    pub(crate) fn new(store: impl Watch + Inspect, clock: Arc<dyn Clock>) -> Self {
        #[cfg(feature = "seal")]
        let seal = Seal::default();
        #[cfg(feature = "seal")]
        let store = Sealed::new(store, seal.clone());
        let (store, time) = (Box::new(store), TrustedTime::new(clock.clone()));
        Self {
            store,
            time,
            health: StoreHealth::default(),
            clock,
            #[cfg(feature = "seal")]
            seal,
        }
    }

    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { time: TrustedTime::new(clock.clone()), clock, ..self }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The clock of the store, as far as it is trusted.
    pub(crate) fn time(&self) -> &TrustedTime {
        &self.time
    }

    /// Whether the store answers, and how long its calls take.
    pub(crate) fn health(&self) -> &StoreHealth {
        &self.health
    }

    /// The audit trail, where the store keeps one.
    pub(crate) fn trail(&self) -> Option<BoundedTrail<'_>> {
        self.store.audit().map(BoundedTrail)
    }

    pub(crate) async fn claim(
        &self,
        draft: Draft,
        about: Option<Arc<About>>,
    ) -> Result<Seen, Fault> {
        let asked_at = self.clock.boot();
        let claiming = match self.trail().zip(about) {
            Some((trail, about)) => {
                let (kind, id) = (EventKind::Claimed, Some(draft.id));
                let note = Note { kind, id, status: None, count: None, about };
                trail.0.claim(draft, Arc::new(note))
            }
            None => self.store.claim(draft),
        };
        let seen = self.timed(&self.health.claim, asked_at, claiming).await?;
        Ok(self.trusted(seen, asked_at))
    }

    pub(crate) async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        let asked_at = self.clock.boot();
        let seen = self.timed(&self.health.load, asked_at, self.store.load(id)).await?;
        Ok(self.trusted(seen, asked_at))
    }

    /// Counts the uses for all nodes, where the store has a meter.
    pub(crate) async fn admit(
        &self,
        allowances: &[Allowance],
    ) -> Option<Result<Option<Duration>, Fault>> {
        let meter = self.store.meter()?;
        let silent = |elapsed: Elapsed| Err(Fault::Unsure(StoreError::Unavailable(elapsed.into())));
        Some(timeout(METER_WAIT, meter.admit(allowances)).await.unwrap_or_else(silent))
    }

    /// What the store's own clock says, right or wrong, in an answer that is given now.
    pub(crate) async fn store_time(&self, id: OperationId) -> Result<StoreTime, Fault> {
        let asked_at = self.clock.boot();
        Ok(self.timed(&self.health.load, asked_at, self.store.load(id)).await?.now)
    }

    pub(crate) async fn swap(&self, id: OperationId, write: Write) -> Result<Swap, Fault> {
        let asked_at = self.clock.boot();
        let swapping = match self.trail().zip(write.about.clone()) {
            Some((trail, about)) => {
                let (kind, status) = event_of(&write);
                let note = Note { kind, id: Some(id), status, count: None, about };
                trail.0.swap(id, write.guard, write.next, Arc::new(note))
            }
            None => self.store.swap(id, write.guard, write.next),
        };
        Ok(match self.timed(&self.health.swap, asked_at, swapping).await? {
            Swap::Done(revision) => Swap::Done(revision),
            Swap::Stale(seen) => Swap::Stale(Box::new(self.trusted(*seen, asked_at))),
        })
    }

    pub(crate) async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Vec<Beat> {
        let asked_at = self.clock.boot();
        let beats = self.timed(&self.health.renew, asked_at, self.store.renew(held, lease)).await;
        beats.unwrap_or_else(|_| vec![Beat::Unsure; held.len()])
    }

    pub(crate) fn changed(&self, id: OperationId) -> BoxFuture<'static, ()> {
        self.store.changed(id)
    }

    pub(crate) fn hears_other_nodes(&self) -> bool {
        self.store.hears_other_nodes()
    }

    /// The page has the store's own time: a lease is over when the clock that wrote it says so.
    pub(crate) async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let asked_at = self.clock.boot();
        let page = self.timed(&self.health.scan, asked_at, self.store.scan(query)).await?;
        self.time.observe(page.now, asked_at);
        Ok(page)
    }

    pub(crate) async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let asked_at = self.clock.boot();
        self.timed(&self.health.sweep, asked_at, self.store.sweep(until, limit)).await
    }

    /// Adds to the audit trail what changed no record.
    pub(crate) async fn append(&self, batch: Arc<Appended>) -> Result<(), Fault> {
        match self.trail() {
            Some(trail) => bounded(trail.0.append(batch)).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        bounded(self.store.check_value(name, from, to)).await
    }

    pub(crate) async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        bounded(self.store.with_prefix(prefix, limit)).await
    }

    pub(crate) async fn census(&self) -> Result<Census, Fault> {
        bounded(self.store.census()).await
    }

    pub(crate) fn limits(&self) -> StoreLimits {
        self.store.limits()
    }

    /// The answer to a call that is sent at `asked_at`.
    async fn timed<T>(
        &self,
        calls: &Calls,
        asked_at: Duration,
        call: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let answer = bounded(call).await;
        self.health.ended(calls, &answer, asked_at, self.clock.boot());
        answer
    }

    fn trusted(&self, seen: Seen, asked_at: Duration) -> Seen {
        let now = self.time.observe(seen.now, asked_at);
        Seen { now, ..seen }
    }
}

impl std::fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnyStore").finish_non_exhaustive()
    }
}

/// The audit trail of a store, with a bound on each call.
#[derive(Clone, Copy)]
pub(crate) struct BoundedTrail<'a>(&'a dyn Audit);

impl BoundedTrail<'_> {
    pub(crate) async fn prune(self, until: StoreTime, limit: usize) -> Result<bool, Fault> {
        bounded(self.0.prune(until, limit)).await
    }

    pub(crate) fn keep(self) -> Duration {
        self.0.keep()
    }
}

impl Trail for BoundedTrail<'_> {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        Box::pin(bounded(self.0.trail().entries(query)))
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        Box::pin(bounded(self.0.trail().count(id, kind)))
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        Box::pin(bounded(self.0.trail().heads()))
    }

    fn head(&self, writer: WriterId) -> Calling<'_, Option<Head>> {
        Box::pin(bounded(self.0.trail().head(writer)))
    }

    fn writers(&self) -> Calling<'_, Vec<WriterId>> {
        Box::pin(bounded_by(WRITERS_WAIT, self.0.trail().writers()))
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        Box::pin(bounded(self.0.trail().chain(writer, after, limit)))
    }

    fn catch_up(&self) -> Calling<'_, ()> {
        Box::pin(bounded(self.0.trail().catch_up()))
    }
}

/// A call that takes too long is unsure: it may still happen. So is one that panics, which must not end the
/// thread that renews everybody's leases.
async fn bounded<T>(call: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    bounded_by(STORE_WAIT, call).await
}

async fn bounded_by<T>(
    wait: Duration,
    call: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let unsure = |why| Err(Fault::Unsure(StoreError::Unavailable(why)));
    match timeout(wait, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => unsure("the store panicked".into()),
        Err(elapsed) => unsure(elapsed.into()),
    }
}

/// How long a store may take to answer one call.
pub(crate) const STORE_WAIT: Duration = Duration::from_secs(5);
/// How long a store may look for all writers of its audit trail: it may have to read all entries.
const WRITERS_WAIT: Duration = Duration::from_secs(60);
/// How long its meter may take: without it the node goes by its own count.
const METER_WAIT: Duration = Duration::from_secs(1);

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// `Store + Watch + Inspect` with boxed futures, so that [`Once`](crate::Once) has no type parameter.
trait DynStore: Send + Sync {
    fn claim(&self, draft: Draft) -> BoxFuture<'_, Result<Seen, Fault>>;
    fn load(&self, id: OperationId) -> BoxFuture<'_, Result<Seen, Fault>>;
    fn swap(&self, id: OperationId, guard: Guard, to: Next) -> BoxFuture<'_, Result<Swap, Fault>>;
    fn renew<'a>(
        &'a self,
        held: &'a [(OperationId, Token)],
        lease: Lease,
    ) -> BoxFuture<'a, Result<Vec<Beat>, Fault>>;
    fn changed(&self, id: OperationId) -> BoxFuture<'static, ()>;
    fn hears_other_nodes(&self) -> bool;
    fn scan(&self, query: Scan) -> BoxFuture<'_, Result<Page, Fault>>;
    fn sweep(&self, until: StoreTime, limit: usize) -> BoxFuture<'_, Result<Swept, Fault>>;
    fn check_value<'a>(
        &'a self,
        name: &'a str,
        from: Option<&'a str>,
        to: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Fault>>;
    fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<(OperationId, Record)>, Fault>>;
    fn census(&self) -> BoxFuture<'_, Result<Census, Fault>>;
    fn audit(&self) -> Option<&dyn Audit>;
    fn limits(&self) -> StoreLimits;
    fn meter(&self) -> Option<&dyn Meter>;
}

impl<S: Store + Watch + Inspect> DynStore for S {
    fn claim(&self, draft: Draft) -> BoxFuture<'_, Result<Seen, Fault>> {
        Box::pin(Store::claim(self, draft))
    }
    fn load(&self, id: OperationId) -> BoxFuture<'_, Result<Seen, Fault>> {
        Box::pin(Store::load(self, id))
    }
    fn swap(&self, id: OperationId, guard: Guard, to: Next) -> BoxFuture<'_, Result<Swap, Fault>> {
        Box::pin(Store::swap(self, id, guard, to))
    }
    fn renew<'a>(
        &'a self,
        held: &'a [(OperationId, Token)],
        lease: Lease,
    ) -> BoxFuture<'a, Result<Vec<Beat>, Fault>> {
        Box::pin(Store::renew(self, held, lease))
    }
    fn changed(&self, id: OperationId) -> BoxFuture<'static, ()> {
        Box::pin(Watch::changed(self, id))
    }
    fn hears_other_nodes(&self) -> bool {
        Watch::hears_other_nodes(self)
    }
    fn scan(&self, query: Scan) -> BoxFuture<'_, Result<Page, Fault>> {
        Box::pin(Maintain::scan(self, query))
    }
    fn sweep(&self, until: StoreTime, limit: usize) -> BoxFuture<'_, Result<Swept, Fault>> {
        Box::pin(Maintain::sweep(self, until, limit))
    }
    fn check_value<'a>(
        &'a self,
        name: &'a str,
        from: Option<&'a str>,
        to: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Fault>> {
        Box::pin(Maintain::check_value(self, name, from, to))
    }
    fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<(OperationId, Record)>, Fault>> {
        Box::pin(Inspect::with_prefix(self, prefix, limit))
    }
    fn census(&self) -> BoxFuture<'_, Result<Census, Fault>> {
        Box::pin(Inspect::census(self))
    }
    fn audit(&self) -> Option<&dyn Audit> {
        Inspect::audit(self)
    }
    fn limits(&self) -> StoreLimits {
        Maintain::limits(self)
    }
    fn meter(&self) -> Option<&dyn Meter> {
        Maintain::meter(self)
    }
}
