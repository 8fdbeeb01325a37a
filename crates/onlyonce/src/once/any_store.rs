//! Any store behind one type, with a bound on each call, and with trusted time in its answers.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use super::trusted_time::TrustedTime;
use crate::clock::{Clock, StoreTime};
use crate::engine::Write;
use crate::record::Token;
use crate::scope::OperationId;
use crate::store::{
    Beat, Draft, Fault, Guard, Lease, Maintain, Next, Page, Scan, Seen, Store, StoreError,
    StoreLimits, Swap, Swept, Watch,
};

/// A store as [`Once`](crate::Once) sees it.
pub(crate) struct AnyStore {
    store: Box<dyn DynStore>,
    clock: Arc<dyn Clock>,
    time: TrustedTime,
}

impl AnyStore {
    pub(crate) fn new(store: impl Watch + Maintain, clock: Arc<dyn Clock>) -> Self {
        Self { store: Box::new(store), time: TrustedTime::new(clock.clone()), clock }
    }

    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { store: self.store, time: TrustedTime::new(clock.clone()), clock }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The clock of the store, as far as it is trusted.
    pub(crate) fn time(&self) -> &TrustedTime {
        &self.time
    }

    pub(crate) async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        let asked_at = self.clock.boot();
        let seen = bounded(self.store.claim(draft)).await?;
        Ok(self.trusted(seen, asked_at))
    }

    pub(crate) async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        let asked_at = self.clock.boot();
        let seen = bounded(self.store.load(id)).await?;
        Ok(self.trusted(seen, asked_at))
    }

    /// What the store's own clock says, right or wrong, in an answer that is given now.
    pub(crate) async fn store_time(&self, id: OperationId) -> Result<StoreTime, Fault> {
        Ok(bounded(self.store.load(id)).await?.now)
    }

    pub(crate) async fn swap(&self, id: OperationId, write: Write) -> Result<Swap, Fault> {
        let asked_at = self.clock.boot();
        let swap = bounded(self.store.swap(id, write.guard, write.next)).await?;
        Ok(match swap {
            Swap::Done(revision) => Swap::Done(revision),
            Swap::Stale(seen) => Swap::Stale(Box::new(self.trusted(*seen, asked_at))),
        })
    }

    pub(crate) async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Vec<Beat> {
        let beats = bounded(self.store.renew(held, lease)).await;
        beats.unwrap_or_else(|_| vec![Beat::Unsure; held.len()])
    }

    pub(crate) fn changed(&self, id: OperationId) -> BoxFuture<'static, ()> {
        self.store.changed(id)
    }

    /// The page has the store's own time: a lease is over when the clock that wrote it says so.
    pub(crate) async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let asked_at = self.clock.boot();
        let page = bounded(self.store.scan(query)).await?;
        self.time.observe(page.now, asked_at);
        Ok(page)
    }

    pub(crate) async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        bounded(self.store.sweep(until, limit)).await
    }

    pub(crate) async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        bounded(self.store.check_value(name, from, to)).await
    }

    pub(crate) fn limits(&self) -> StoreLimits {
        self.store.limits()
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

/// A call that takes too long is unsure: it may still happen. So is one that panics, which must not end the
/// thread that renews everybody's leases.
async fn bounded<T>(call: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let unsure = |why| Err(Fault::Unsure(StoreError::Unavailable(why)));
    match timeout(STORE_WAIT, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => unsure("the store panicked".into()),
        Err(elapsed) => unsure(elapsed.into()),
    }
}

/// How long a store may take to answer one call.
pub(crate) const STORE_WAIT: Duration = Duration::from_secs(5);

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// `Store + Watch + Maintain` with boxed futures, so that [`Once`](crate::Once) has no type parameter.
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
    fn scan(&self, query: Scan) -> BoxFuture<'_, Result<Page, Fault>>;
    fn sweep(&self, until: StoreTime, limit: usize) -> BoxFuture<'_, Result<Swept, Fault>>;
    fn check_value<'a>(
        &'a self,
        name: &'a str,
        from: Option<&'a str>,
        to: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Fault>>;
    fn limits(&self) -> StoreLimits;
}

impl<S: Store + Watch + Maintain> DynStore for S {
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
    fn limits(&self) -> StoreLimits {
        Maintain::limits(self)
    }
}
