//! The running engine: one store, one background thread, and the bounds of one process.

mod any_store;
mod ask;
mod audit;
mod cache;
mod changed_principal;
mod claim;
mod claim_guard;
mod counts;
mod disown;
mod events;
mod flight;
mod id_check;
mod latency;
mod limits;
mod live_keys;
mod maintenance;
mod operations;
mod outcome;
mod perform;
mod permission;
mod reconcile;
mod rekeyed;
mod routes;
mod run;
#[cfg(feature = "seal")]
mod seal;
mod settle;
mod store_health;
mod sync;
mod trusted_time;
mod velocity;
mod wait;
mod waiters;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

pub use self::counts::Counts;
pub use self::events::{Events, Heard, OperationEvent};
pub use self::id_check::IdChange;
pub use self::latency::{Latencies, Latency, RouteLatency, StoreCallLatency};
pub use self::limits::Limits;
pub use self::operations::{
    Action, Bulk, BulkRefusal, OperateError, OperationFilter, OperationPage, Operations,
    RevisionDigest, RevisionDigestError, Selection, StoredOperation,
};
pub use self::outcome::{Cause, OnceError, Outcome};
pub use self::permission::Permission;
pub use self::reconcile::{Finding, Question, Reconciler};
pub use self::rekeyed::RekeyingCaller;
pub use self::run::{Attempt, Failure, Operation};

pub(crate) use self::ask::{Ask, Ended, Refusal};
pub(crate) use self::counts::Counters;
#[cfg(feature = "tower")]
pub(crate) use self::limits::BodyRoom;
pub(crate) use self::limits::Room;
pub(crate) use self::perform::{Verdict, Worked};
#[cfg(feature = "tower")]
pub(crate) use self::permission::{Asked, refused_permission};
#[cfg(feature = "tower")]
pub(crate) use self::reconcile::Asking;
pub(crate) use self::waiters::Waiters;

use self::any_store::{AnyStore, STORE_WAIT};
use self::audit::Readings;
use self::cache::Cache;
use self::changed_principal::ChangedPrincipals;
use self::claim::{NoAnswer, NotClaimed};
use self::claim_guard::LiveClaims;
use self::disown::Disowned;
use self::events::EventChannel;
use self::flight::Flights;
use self::live_keys::LiveKeys;
use self::reconcile::Absences;
use self::rekeyed::Rekeyed;
use self::routes::Routes;
use self::settle::UnsettledAnswers;
use self::velocity::Meters;
use crate::clock::{Clock, StoreTime, SystemClock, as_ms};
use crate::engine::Write;
use crate::planted::{Planted, planted};
use crate::record::{Response, State, Token};
use crate::runtime_thread::RuntimeThread;
use crate::scope::{OperationId, Secret};
use crate::store::{Inspect, Seen, Swap, Watch};

/// Runs each operation at most once. A clone is the same engine; make one per store and share it.
///
/// ```
/// # #[cfg(feature = "memory")] {
/// use onlyonce::{Once, store::memory::MemoryStore};
///
/// let once = Once::new(MemoryStore::new());
/// assert_eq!(once.counts().executed, 0);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Once {
    pub(crate) inner: Arc<Inner>,
    maintenance: Arc<RuntimeThread>,
}

impl Once {
    /// An engine on `store` with the defaults of [`OnceBuilder`].
    ///
    /// # Panics
    /// If the operating system gives no thread for the background work.
    pub fn new(store: impl Watch + Inspect) -> Self {
        Self::builder(store).build()
    }

    /// A builder of an engine on `store`, to change its limits, its secret or its clock before it starts.
    pub fn builder(store: impl Watch + Inspect) -> OnceBuilder {
        OnceBuilder::new(store)
    }

    /// The counts of all routes together, since this engine started.
    pub fn counts(&self) -> Counts {
        let of_routes = self.counts_by_route().into_iter().map(|(_, counts)| counts);
        of_routes.fold(self.inner.counters.snapshot(), Counts::plus)
    }

    /// The counts of each route, by the name in its policy, since this engine started. Of the names that only
    /// [`run`](Self::run) was given, the first 1,000 are told; all further ones are `(other routes)`.
    pub fn counts_by_route(&self) -> Vec<(Arc<str>, Counts)> {
        let routes = self.inner.routes.read().unwrap_or_else(PoisonError::into_inner);
        let counts = routes.iter().map(|(name, route)| (name.clone(), route.counts()));
        counts.collect()
    }

    /// How long store calls, handlers and guarded requests took since this engine started, all routes together.
    pub fn latencies(&self) -> Latencies {
        let of_routes = self.latencies_by_route();
        let (handler, request) = of_routes.into_iter().fold(
            (Latency::default(), Latency::default()),
            |(handler, request), (_, of_route)| {
                (handler.plus(of_route.handler), request.plus(of_route.request))
            },
        );
        Latencies { store_calls: self.inner.store.health().latencies(), handler, request }
    }

    /// How long the handlers and the guarded requests of each route took, by the name in its policy.
    pub fn latencies_by_route(&self) -> Vec<(Arc<str>, RouteLatency)> {
        let routes = self.inner.routes.read().unwrap_or_else(PoisonError::into_inner);
        routes.iter().map(|(name, route)| (name.clone(), route.latency())).collect()
    }

    /// Whether the store answered the last call. It is false from a call that found the store unavailable until the
    /// next call that the store answered. [`is_ready`](Self::is_ready) asks the store.
    pub fn is_store_up(&self) -> bool {
        self.inner.store.health().is_up()
    }

    /// How long ago a sweep last deleted everything that had expired; before the first sweep, how long this engine
    /// runs. More than two [`Limits::sweep_every`] means that sweeps fail, or do not keep up.
    pub fn sweep_lag(&self) -> Duration {
        let swept_at_ms = self.inner.swept_at_ms.load(Ordering::Relaxed);
        self.inner.clock.boot().saturating_sub(Duration::from_millis(swept_at_ms))
    }

    /// The limits of this engine.
    pub fn limits(&self) -> Limits {
        self.inner.limits
    }

    /// Whether the store answers.
    pub async fn is_ready(&self) -> bool {
        let loaded = self.inner.store.load(OperationId::from_bytes([0; 16]));
        timeout(READY_WAIT, loaded).await.is_ok_and(|seen| seen.is_ok())
    }

    /// How far the store's clock is ahead of the time that this node trusts. Above zero, the clock was set forward
    /// while the node ran, and keys live longer here until the clock is put right or the node restarts.
    pub fn clock_ahead_by(&self) -> Duration {
        self.inner.store.time().ahead_by()
    }

    /// Whether the limits of [`Policy::with_velocity`](crate::Policy::with_velocity) are counted by this node alone, although
    /// its store has a meter for all nodes: the meter did not answer when it was last asked.
    pub fn counts_velocity_alone(&self) -> bool {
        self.inner.meters.is_alone()
    }

    /// Callers whose clients seem to make a new key for each retry, the most frequent first: each sent the same request under
    /// another key within a minute. At most 1,000, since this engine started. Nothing was refused for it.
    pub fn rekeying_callers(&self) -> Vec<RekeyingCaller> {
        self.inner.rekeyed.callers()
    }

    /// Layers that are made after this replace the earlier ones of the same route name: `hold_max` and the reconciler of
    /// a route are those of its new layers, its counts go on. Earlier layers may still be in use. For a configuration that
    /// is read again; without this, two layers of one name share it, with the longer `hold_max` and no background questions.
    pub fn replace_layers(&self) {
        self.inner.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The store's time now, as far as this node trusts it; `None` before the first answer of the store.
    pub fn now(&self) -> Option<StoreTime> {
        self.inner.store.time().now()
    }

    /// How many operations are under way.
    pub fn executing(&self) -> usize {
        self.inner.live_claims.all().len()
    }

    /// How many callers wait for the answer of another.
    pub fn waiting(&self) -> usize {
        self.inner.waiters.len()
    }

    /// Starts no operation any more, waits at most `within` for the operations under way, and marks the rest unknown:
    /// never released, because they may have been executed. A store that does not answer delays this by at most the
    /// timeout of one store call.
    pub async fn shutdown(self, within: Duration) -> Left {
        let now = Instant::now();
        let end = now.checked_add(within).unwrap_or(now + FOR_EVER);
        self.inner.live_claims.drain();
        let drained = timeout_at(end, self.inner.live_claims.idle()).await;
        let unknown = match drained {
            Ok(()) => 0,
            Err(_) => self.inner.abandon().await,
        };
        let disowned = self.inner.disowned.len();
        if drained.is_ok() {
            // The background thread may be waiting for a store that does not answer.
            let _ = timeout_at(end, self.maintenance.stop()).await;
        }
        Left { unknown, disowned }
    }
}

/// The operations and claims that a shutdown left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Operations that had not ended: their outcome is unknown. Find out what they did, then settle them.
    pub unknown: usize,
    /// Claims that the store never confirmed. Nothing of them was executed; they lapse by themselves.
    pub disowned: usize,
}

/// An engine that has not started yet. Made by [`Once::builder`].
#[derive(Debug)]
pub struct OnceBuilder {
    store: AnyStore,
    limits: Limits,
    secret: Option<Secret>,
}

impl OnceBuilder {
    fn new(store: impl Watch + Inspect) -> Self {
        let store = AnyStore::new(store, Arc::new(SystemClock));
        Self { store, limits: Limits::default(), secret: None }
    }

    /// Counts leases on `clock`. Default: the system's clock. For tests: a clock that stands still renews no lease.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.store = self.store.with_clock(Arc::new(clock));
        self
    }

    /// Bounds the memory and the work of this process. Default: [`Limits::default`]. A low bound refuses requests with
    /// 503; a high one lets a burst use that much memory.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Makes the ids of operations from this secret too, and the digests of callers and of requests: without it nobody can
    /// compute an id, test a guess of a body or a credential against the store, or tell that two deployments hold the same
    /// key. The store has keys and answers in clear: the feature `seal` hides them. Default: none.
    ///
    /// After a change of the secret no live key is found, and retries run again: ask [`id_changes`](Self::id_changes)
    /// before you build.
    #[must_use]
    pub fn with_secret(self, secret: Secret) -> Self {
        Self { secret: Some(secret), ..self }
    }

    /// Starts the engine and its background thread.
    ///
    /// # Panics
    /// If the operating system gives no thread.
    pub fn build(self) -> Once {
        let inner = Arc::new(Inner::new(self));
        let maintenance = Arc::new(maintenance::start(inner.clone()));
        Once { inner, maintenance }
    }

    /// An engine without a thread: its background work is the future that is returned too. For simulations, which must
    /// decide when everything happens. An engine whose future is not driven renews no lease.
    ///
    /// # Panics
    /// Outside of a runtime of tokio.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn build_driven(self) -> (Once, impl Future<Output = ()>) {
        let inner = Arc::new(Inner::new(self));
        let (maintenance, work) = maintenance::driven(inner.clone());
        (Once { inner, maintenance: Arc::new(maintenance) }, work)
    }
}

pub(crate) struct Inner {
    pub(crate) store: AnyStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: Limits,
    pub(crate) secret: Option<Secret>,
    pub(crate) counters: Counters,
    pub(crate) room: Room,
    cache: Cache,
    claims: Flights<Result<Seen, NotClaimed>>,
    loads: Flights<Result<Seen, NoAnswer>>,
    live_claims: Arc<LiveClaims>,
    disowned: Arc<Disowned>,
    unsettled: Arc<UnsettledAnswers>,
    waiters: Waiters,
    absences: Absences,
    meters: Meters,
    live_keys: Arc<LiveKeys>,
    rekeyed: Rekeyed,
    pub(crate) changed_principals: ChangedPrincipals,
    events: Arc<EventChannel>,
    readings: Readings,
    /// The response that completes an operation whose outcome was unknown for longer than `hold_max`.
    given_up: Arc<Response>,
    /// When a sweep last deleted everything that had expired, on this node's clock, in milliseconds.
    swept_at_ms: AtomicU64,
    /// The shortest lease in use. The background thread wakes when a shorter one comes into use.
    lease_min: watch::Sender<Duration>,
    routes: RwLock<Routes>,
    /// How often the layers were replaced.
    generation: AtomicUsize,
}

impl Inner {
    fn new(builder: OnceBuilder) -> Self {
        let OnceBuilder { store, limits, secret } = builder;
        Self {
            clock: store.clock().clone(),
            secret,
            counters: Counters::default(),
            room: Room::new(&limits),
            cache: Cache::new(limits.cache_bytes_max),
            claims: Flights::new(),
            loads: Flights::new(),
            live_claims: Arc::default(),
            disowned: Arc::new(Disowned::new(
                limits.executing_max.saturating_mul(DISOWNED_PER_EXECUTING),
            )),
            unsettled: Arc::new(UnsettledAnswers::new(limits.unsettled_bytes_max)),
            waiters: Waiters::new(limits),
            absences: Absences::default(),
            meters: Meters::default(),
            live_keys: Arc::default(),
            rekeyed: Rekeyed::default(),
            changed_principals: ChangedPrincipals::default(),
            events: Arc::default(),
            readings: Readings::default(),
            given_up: Arc::new(crate::problem::given_up()),
            swept_at_ms: AtomicU64::new(as_ms(store.clock().boot()).unsigned_abs()),
            lease_min: watch::Sender::new(LEASE_DEFAULT),
            routes: RwLock::default(),
            generation: AtomicUsize::new(0),
            limits,
            store,
        }
    }

    /// The trusted time; before the first answer of the store, the node's own.
    pub(crate) fn trusted_now(&self) -> StoreTime {
        self.store.time().now().unwrap_or_else(|| self.clock.wall())
    }

    /// Marks every live claim unknown, and returns how many there were. A claim whose mark the store does not take
    /// now is marked by a reaper later.
    async fn abandon(&self) -> usize {
        let (held, orphans) = self.live_claims.all_and_orphans();
        let ended = AtomicUsize::new(0);
        let marking = stream::iter(&held).for_each_concurrent(ABANDONED_AT_ONCE, |claimed| {
            let write = match planted(Planted::DrainingReleases) {
                true => Write::release(claimed.token, claimed.taken_from),
                false => Write::mark_unknown(claimed.token),
            };
            let write = write.with_about(claimed.about.clone());
            let marked = self.store.swap(claimed.id, write);
            let ended = &ended;
            async move {
                if let Ok(Swap::Stale(seen)) = marked.await
                    && !is_unknown(&seen, claimed.token)
                {
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let _ = timeout(STORE_WAIT, marking).await;
        held.len() - ended.into_inner() + orphans
    }
}

/// Whether the attempt with this token is marked unknown.
fn is_unknown(seen: &Seen, token: Token) -> bool {
    let record = seen.record.as_ref();
    record.is_some_and(|record| {
        record.token == token && matches!(record.state, State::Unknown { .. })
    })
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// For a shutdown without a bound.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const READY_WAIT: Duration = Duration::from_secs(1);
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// How many operations are marked unknown at a time at the end of a shutdown.
const ABANDONED_AT_ONCE: usize = 100;
/// Claims that may be disowned at a time, for each operation that may be under way.
const DISOWNED_PER_EXECUTING: usize = 4;
