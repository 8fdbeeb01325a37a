//! The running engine: one store, one background thread, and the bounds of one process.

mod any_store;
mod cache;
mod claim;
mod claim_guard;
mod counts;
mod disown;
mod flight;
mod id_check;
mod limits;
mod maintenance;
mod outcome;
mod perform;
mod reconcile;
mod run;
mod settle;
mod trusted_time;
mod wait;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

pub use self::counts::Counts;
pub use self::id_check::IdChange;
pub use self::limits::Limits;
pub use self::outcome::{Cause, OnceError, Outcome};
pub use self::reconcile::{Finding, Question, Reconciler};
pub use self::run::{Attempt, Failure, Operation};

pub(crate) use self::counts::Counters;
#[cfg(feature = "tower")]
pub(crate) use self::limits::BodyRoom;
pub(crate) use self::limits::Room;
pub(crate) use self::perform::{Verdict, Worked};
pub(crate) use self::reconcile::Asking;

use self::any_store::{AnyStore, STORE_WAIT};
use self::cache::Cache;
use self::claim::NoAnswer;
use self::claim_guard::LiveClaims;
use self::disown::Disowned;
use self::flight::Flights;
use self::maintenance::Maintenance;
use self::reconcile::Absences;
use self::settle::UnsettledAnswers;
use self::wait::Waiters;
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::engine::Write;
use crate::fingerprint::Fingerprint;
use crate::policy::{Mode, Policy, StoreDown};
use crate::record::{KeyText, Response, State, Token};
use crate::scope::{OperationId, Principal, Secret};
use crate::store::{Maintain, Seen, Swap, Watch};

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
    maintenance: Arc<Maintenance>,
}

impl Once {
    /// An engine on `store` with the defaults of [`OnceBuilder`].
    ///
    /// # Panics
    /// If the operating system gives no thread for the background work.
    pub fn new(store: impl Watch + Maintain) -> Self {
        Self::builder(store).build()
    }

    /// A builder of an engine on `store`, to change its limits, its secret or its clock before it starts.
    pub fn builder(store: impl Watch + Maintain) -> OnceBuilder {
        OnceBuilder::new(store)
    }

    /// The counts of all routes together, since this engine started.
    pub fn counts(&self) -> Counts {
        let of_routes = self.counts_by_route().into_iter().map(|(_, counts)| counts);
        of_routes.fold(self.inner.counters.snapshot(), Counts::plus)
    }

    /// The counts of each route, by the name in its policy, since this engine started.
    pub fn counts_by_route(&self) -> Vec<(Arc<str>, Counts)> {
        let routes = self.inner.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = routes.iter().map(|(name, route)| (name.clone(), route.counts()));
        counts.collect()
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
        let end = now.checked_add(within).unwrap_or(now + HOLD_MAX_DEFAULT);
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
    fn new(store: impl Watch + Maintain) -> Self {
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

    /// Makes the ids of operations from this secret too: without it nobody can compute an id, or tell that two
    /// deployments hold the same key. The store has the key itself in clear. Default: none.
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
        let maintenance = Arc::new(Maintenance::start(inner.clone()));
        Once { inner, maintenance }
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
    claims: Flights<Result<Seen, NoAnswer>>,
    loads: Flights<Result<Seen, NoAnswer>>,
    live_claims: Arc<LiveClaims>,
    disowned: Arc<Disowned>,
    unsettled: Arc<UnsettledAnswers>,
    waiters: Waiters,
    absences: Absences,
    /// The response that completes an operation whose outcome was unknown for longer than `hold_max`.
    given_up: Arc<Response>,
    /// The shortest lease in use. The background thread wakes when a shorter one comes into use.
    lease_min: watch::Sender<Duration>,
    routes: Mutex<BTreeMap<Arc<str>, RouteState>>,
}

/// What the engine knows of a route: the policies and layers that have its name.
struct RouteState {
    /// The longest `hold_max` of the policies with this name.
    hold_max: Duration,
    counters: Arc<Counters>,
    /// The counts of layers in observe mode: what would have happened.
    observed: Arc<Counters>,
    /// The reconcilers of the layers with this name. Two at most: one is used, and two mean that none may be.
    reconcilers: Vec<(Arc<Policy>, Arc<dyn Reconciler>)>,
}

impl RouteState {
    fn counts(&self) -> Counts {
        self.counters.snapshot().plus(self.observed.snapshot().as_observed())
    }
}

impl Inner {
    fn new(builder: OnceBuilder) -> Self {
        let OnceBuilder { store, limits, secret } = builder;
        Self {
            clock: store.clock().clone(),
            store,
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
            given_up: Arc::new(crate::problem::given_up()),
            lease_min: watch::Sender::new(LEASE_DEFAULT),
            routes: Mutex::default(),
            limits,
        }
    }

    /// Registers the route of a policy before its first request, and lowers `response_bytes_max` to what the store
    /// takes.
    pub(crate) fn learn(&self, policy: Policy) -> (Arc<Policy>, Arc<Counters>) {
        let store_max = self.store.limits().body_bytes_max;
        let body_bytes_max = policy.response_bytes_max().min(store_max);
        let policy = policy.with_response_bytes_max(body_bytes_max);
        self.lease_min.send_if_modified(|shortest| {
            let is_shorter = policy.lease() < *shortest;
            *shortest = policy.lease().min(*shortest);
            is_shorter
        });
        let policy = Arc::new(policy);
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let route = routes.entry(policy.route().clone()).or_insert_with(|| RouteState {
            hold_max: policy.hold_max(),
            counters: Arc::default(),
            observed: Arc::default(),
            reconcilers: Vec::new(),
        });
        route.hold_max = route.hold_max.max(policy.hold_max());
        let counters = match policy.mode() {
            Mode::Enforce => &route.counters,
            Mode::Observe => &route.observed,
        };
        (policy, counters.clone())
    }

    /// Registers the reconciler of a route, for questions in the background.
    pub(crate) fn learn_reconciler(&self, policy: &Arc<Policy>, reconciler: Arc<dyn Reconciler>) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        // Two are enough to know that the name is not unique.
        if let Some(route) =
            routes.get_mut(policy.route()).filter(|route| route.reconcilers.len() < 2)
        {
            route.reconcilers.push((policy.clone(), reconciler));
        }
    }

    /// The reconciler that may be asked in the background about the operations of a route. `None` where two layers
    /// have the same route name: a record does not say which of them sent its request.
    pub(crate) fn background_reconciler(
        &self,
        route: &str,
    ) -> Option<(Arc<Policy>, Arc<dyn Reconciler>)> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        match routes.get(route)?.reconcilers.as_slice() {
            [(policy, one)] if one.asks_by_itself() => Some((policy.clone(), one.clone())),
            _ => None,
        }
    }

    fn hold_max(&self, route: &str) -> Duration {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.get(route).map_or(HOLD_MAX_DEFAULT, |route| route.hold_max)
    }

    /// Marks every live claim unknown, and returns how many there were. A claim whose mark the store does not take
    /// now is marked by a reaper later.
    async fn abandon(&self) -> usize {
        let (held, orphans) = self.live_claims.all_and_orphans();
        let ended = AtomicUsize::new(0);
        let marking = stream::iter(&held).for_each_concurrent(ABANDONED_AT_ONCE, |claimed| {
            let marked = self.store.swap(claimed.id, Write::mark_unknown(claimed.token));
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

/// One request for an operation, as the engine needs it.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: OperationId,
    pub(crate) key: KeyText,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) principal: Principal,
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: Arc<Counters>,
    /// The reconciler that `recovery = "reconcile"` asks, and the headers to ask with.
    pub(crate) asking: Option<Asking>,
    /// How and where the request is sent, for a later question about it: see `Draft::target`.
    pub(crate) target: Arc<str>,
    /// The response with which `recovery = "fail"` completes an operation that a dead owner left.
    pub(crate) failure: Arc<Response>,
}

impl Counters {
    /// Counts how a request ended. An execution was counted when it began.
    pub(crate) fn ended<T>(&self, ended: &Ended<T>) {
        match ended {
            Ended::Fresh(_) => {}
            Ended::Unsettled => self.unknown.one(),
            Ended::Refused(refusal) => self.refused(refusal),
        }
    }

    /// Counts a request that was not executed.
    pub(crate) fn refused(&self, refusal: &Refusal) {
        let counter = match refusal {
            Refusal::Replay(_) => &self.replayed,
            Refusal::Reused => &self.reused,
            Refusal::InProgress => &self.in_progress,
            Refusal::Unknown { .. } => &self.unknown,
            Refusal::StoreDown { .. } => &self.store_down,
            Refusal::Overloaded => &self.overloaded,
        };
        counter.one();
    }
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    /// This request executed the operation, and this is its answer.
    Fresh(T),
    /// This request did not execute the operation.
    Refused(Refusal),
    /// This request executed the operation, and the store has not taken the outcome: unknown.
    Unsettled,
}

/// The answer to a request that did not execute its operation.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The stored answer.
    Replay(Arc<Response>),
    /// The key was used for another request.
    Reused,
    /// The first request still runs.
    InProgress,
    /// The operation was sent, and its outcome is not known.
    Unknown { since: StoreTime },
    /// The store gave no answer. Unreachable: it is certain that the claim did not reach the store.
    StoreDown { is_unreachable: bool, policy: StoreDown },
    /// A limit of this process is reached, or the process is shutting down.
    Overloaded,
}

const READY_WAIT: Duration = Duration::from_secs(1);
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const HOLD_MAX_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many operations are marked unknown at a time at the end of a shutdown.
const ABANDONED_AT_ONCE: usize = 100;
/// Claims that may be disowned at a time, for each operation that may be under way.
const DISOWNED_PER_EXECUTING: usize = 4;
