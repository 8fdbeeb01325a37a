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

    /// An engine on `store`, to be adjusted before it starts.
    pub fn builder(store: impl Watch + Maintain) -> OnceBuilder {
        OnceBuilder::new(store)
    }

    /// How often what happened so far, on all routes together.
    pub fn counts(&self) -> Counts {
        let of_routes = self.counts_by_route().into_iter().map(|(_, counts)| counts);
        of_routes.fold(self.inner.counters.snapshot(), Counts::plus)
    }

    /// How often what happened so far on each route, by the name that its policy has.
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

    /// Begins nothing new, waits at most `within` for what is under way, and marks the rest unknown:
    /// never released, because it may have been executed. A store that does not answer delays this by
    /// no more than one call of it.
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
            // The background thread may be in the middle of a call that the store does not answer.
            let _ = timeout_at(end, self.maintenance.stop()).await;
        }
        Left { unknown, disowned }
    }
}

/// What a shutdown left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Operations that had not ended: their outcome is unknown. See what they did, then settle them.
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

    /// Counts leases on `clock`. Default: the system's. For tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.store = self.store.with_clock(Arc::new(clock));
        self
    }

    /// Bounds this process. Default: [`Limits::default`].
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Keys the ids of operations: without the secret nobody can compute one, or tell that two deployments
    /// hold the same key. The store has the key itself in clear. Default: none.
    ///
    /// A changed secret forgets every live key: [`id_changes`](Self::id_changes) tells before it starts.
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
    /// What an unknown outcome is completed with when it was held for too long.
    given_up: Arc<Response>,
    /// The shortest lease that is in use; the background thread wakes when it becomes shorter.
    lease_min: watch::Sender<Duration>,
    routes: Mutex<BTreeMap<Arc<str>, RouteState>>,
}

/// What is known of a route, by its name.
struct RouteState {
    /// The longest of the policies that have this name.
    hold_max: Duration,
    counters: Arc<Counters>,
    /// What would have happened, where the route only observes.
    observed: Arc<Counters>,
    /// One for each layer that has this name and somebody to ask, two at most.
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

    /// Learns the times of a policy before its first request, and asks no more of the store than it
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

    /// Whom to ask about the operations of a route, also in the background.
    pub(crate) fn learn_reconciler(&self, policy: &Arc<Policy>, reconciler: Arc<dyn Reconciler>) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        // More than two say no more than two do.
        if let Some(route) =
            routes.get_mut(policy.route()).filter(|route| route.reconcilers.len() < 2)
        {
            route.reconcilers.push((policy.clone(), reconciler));
        }
    }

    /// Who may be asked in the background about the operations of a route. Where two layers have its name, nobody:
    /// the record does not say which of them sent the request.
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

    /// Marks everything that is still held unknown; how many there were. What the store does not take
    /// now, a reaper marks later.
    async fn abandon(&self) -> usize {
        // Seen together: a task that dies meanwhile moves from the one to the other.
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

/// Whether the attempt with this token was marked unknown before.
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

/// One request for an operation.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: OperationId,
    pub(crate) key: KeyText,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) principal: Principal,
    pub(crate) policy: Arc<Policy>,
    pub(crate) counters: Arc<Counters>,
    /// Whom `recovery = "reconcile"` asks.
    pub(crate) asking: Option<Asking>,
    /// Host and path, where someone may be asked about the operation later.
    pub(crate) target: Arc<str>,
    /// What `recovery = "fail"` completes an abandoned operation with.
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
    /// It was executed, and this is its own answer.
    Fresh(T),
    /// It was not executed by this request.
    Refused(Refusal),
    /// It was executed, and the store has not taken its outcome: unknown.
    Unsettled,
}

/// What a request gets that was not executed.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The stored answer.
    Replay(Arc<Response>),
    /// The key was used for another request.
    Reused,
    /// The first still runs.
    InProgress,
    /// Nobody knows whether it was executed.
    Unknown { since: StoreTime },
    /// The store gave no answer; unreachable means that the claim is surely not there.
    StoreDown { is_unreachable: bool, policy: StoreDown },
    /// A bound of this process is reached, or it is shutting down.
    Overloaded,
}

const READY_WAIT: Duration = Duration::from_secs(1);
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
const HOLD_MAX_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many operations are marked unknown at a time at the end of a shutdown.
const ABANDONED_AT_ONCE: usize = 100;
/// Claims that may be disowned at a time, for each operation that may be under way.
const DISOWNED_PER_EXECUTING: usize = 4;
