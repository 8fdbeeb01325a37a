//! Any store behind one type, with a bound on each call and an eye on its clock.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;

use crate::clock::{Clock, Reading, StoreTime};
use crate::engine::Write;
use crate::record::Token;
use crate::scope::OperationId;
use crate::store::time::{Time, Told};
use crate::store::{
    Beat, Draft, Fault, Guard, Lease, Limits, Maintain, Next, Notes, Page, Scan, Seen, Store,
    StoreError, Swap, Swept, Watch,
};

/// A store as [`Once`](crate::Once) sees it.
pub(crate) struct AnyStore {
    store: Box<dyn DynStore>,
    clock: Arc<dyn Clock>,
    reading: Mutex<Option<Reading>>,
    /// What we make of the store's clock, where it does not watch that by itself.
    time: Option<Time>,
    /// As the last answer said.
    clock_held: AtomicBool,
}

impl AnyStore {
    pub(crate) fn new(store: impl Watch + Maintain, clock: Arc<dyn Clock>) -> Self {
        let (store, reading, clock_held) = (Box::new(store), Mutex::default(), false.into());
        Self { store, clock: clock.clone(), reading, time: None, clock_held }.with_clock(clock)
    }

    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        let time = (!self.limits().watches_clock).then(|| Time::new(clock.clone(), 0));
        Self { clock, time, ..self }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    pub(crate) async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        let asked_at = self.clock.boot();
        let seen = bounded(self.store.claim(draft)).await?;
        Ok(self.observed(seen, asked_at))
    }

    pub(crate) async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        let asked_at = self.clock.boot();
        let seen = bounded(self.store.load(id)).await?;
        Ok(self.observed(seen, asked_at))
    }

    pub(crate) async fn swap(&self, id: OperationId, write: Write) -> Result<Swap, Fault> {
        let asked_at = self.clock.boot();
        let swap = bounded(self.store.swap(id, write.guard, write.next, Notes::default())).await?;
        Ok(match swap {
            Swap::Done(revision) => Swap::Done(revision),
            Swap::Stale(seen) => Swap::Stale(Box::new(self.observed(*seen, asked_at))),
        })
    }

    pub(crate) async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Vec<Beat> {
        let beats = bounded(self.store.renew(held, lease)).await;
        beats.unwrap_or_else(|_| vec![Beat::Unsure; held.len()])
    }

    pub(crate) fn changed(&self, id: OperationId) -> BoxFuture<'static, ()> {
        self.store.changed(id)
    }

    pub(crate) async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let asked_at = self.clock.boot();
        let mut page = bounded(self.store.scan(query)).await?;
        page.clock_held = self.observe(page.now, page.clock_held, asked_at);
        Ok(page)
    }

    pub(crate) async fn sweep(&self, limit: usize) -> Result<Swept, Fault> {
        bounded(self.store.sweep(limit)).await
    }

    pub(crate) async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        bounded(self.store.check_value(name, from, to)).await
    }

    pub(crate) fn limits(&self) -> Limits {
        self.store.limits()
    }

    pub(crate) fn is_clock_held(&self) -> bool {
        self.clock_held.load(Ordering::Relaxed)
    }

    /// What the store's clock says now, if it was ever read.
    pub(crate) fn now(&self) -> Option<StoreTime> {
        let reading = *self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.map(|reading| reading.estimate(self.clock.boot()))
    }

    /// Tells the store of a jump of its clock, so that every node obeys it.
    pub(crate) async fn tell_of_jump(&self) -> Result<(), Fault> {
        if let Some(time) = self.time.as_ref().filter(|time| time.has_jumped()) {
            bounded(self.store.hold_clock(true)).await?;
            time.has_told();
        }
        Ok(())
    }

    /// When the store's clock is seen to jump, where it does not watch that by itself.
    pub(crate) async fn jumped(&self) {
        match &self.time {
            Some(time) => time.jumped.notified().await,
            None => std::future::pending().await,
        }
    }

    fn observed(&self, mut seen: Seen, asked_at: Duration) -> Seen {
        seen.clock_held = self.observe(seen.now, seen.clock_held, asked_at);
        seen
    }

    /// Whether the clock is held, or is known to have jumped, this reading of it included.
    ///
    /// A reading belongs to the moment before it was asked for, and is judged at the moment when it is
    /// here: a node that stood still in between must not take its own pause for a jump of the store.
    fn observe(&self, now: StoreTime, clock_held: bool, asked_at: Duration) -> bool {
        let reading = Some(Reading::new(now, asked_at));
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = reading;
        let told = Told { now, clock_held, confirmed: 0 };
        let judge = |time: &Time| time.tell(told, asked_at).clock_held;
        let clock_held = self.time.as_ref().map_or(clock_held, judge);
        self.clock_held.store(clock_held, Ordering::Relaxed);
        clock_held
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
    fn swap(
        &self,
        id: OperationId,
        guard: Guard,
        to: Next,
        notes: Notes,
    ) -> BoxFuture<'_, Result<Swap, Fault>>;
    fn renew<'a>(
        &'a self,
        held: &'a [(OperationId, Token)],
        lease: Lease,
    ) -> BoxFuture<'a, Result<Vec<Beat>, Fault>>;
    fn changed(&self, id: OperationId) -> BoxFuture<'static, ()>;
    fn scan(&self, query: Scan) -> BoxFuture<'_, Result<Page, Fault>>;
    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<Swept, Fault>>;
    fn hold_clock(&self, held: bool) -> BoxFuture<'_, Result<(), Fault>>;
    fn check_value<'a>(
        &'a self,
        name: &'a str,
        from: Option<&'a str>,
        to: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Fault>>;
    fn limits(&self) -> Limits;
}

impl<S: Store + Watch + Maintain> DynStore for S {
    fn claim(&self, draft: Draft) -> BoxFuture<'_, Result<Seen, Fault>> {
        Box::pin(Store::claim(self, draft))
    }
    fn load(&self, id: OperationId) -> BoxFuture<'_, Result<Seen, Fault>> {
        Box::pin(Store::load(self, id))
    }
    fn swap(
        &self,
        id: OperationId,
        guard: Guard,
        to: Next,
        notes: Notes,
    ) -> BoxFuture<'_, Result<Swap, Fault>> {
        Box::pin(Store::swap(self, id, guard, to, notes))
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
    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<Swept, Fault>> {
        Box::pin(Maintain::sweep(self, limit))
    }
    fn hold_clock(&self, held: bool) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(Maintain::hold_clock(self, held))
    }
    fn check_value<'a>(
        &'a self,
        name: &'a str,
        from: Option<&'a str>,
        to: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<String>, Fault>> {
        Box::pin(Maintain::check_value(self, name, from, to))
    }
    fn limits(&self) -> Limits {
        Maintain::limits(self)
    }
}
