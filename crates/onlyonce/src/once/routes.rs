//! What the engine knows of the routes: their counts, and the policies and reconcilers that have their names.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Inner;
use super::counts::{Counters, Counts};
use super::latency::RouteLatency;
use super::reconcile::Reconciler;
use crate::fingerprint::Pointer;
use crate::policy::{Mode, Policy};

/// What the engine knows of a route: the policies and layers that have its name.
pub(super) struct RouteState {
    /// The generation of its layers.
    generation: usize,
    /// The longest `hold_max` of the policies with this name.
    hold_max: Duration,
    counters: Arc<Counters>,
    /// Where the answers of this route have business ids, for the audit trail.
    audit_ids: Vec<Pointer>,
    /// The counts of layers in observe mode: what would have happened.
    observed: Arc<Counters>,
    /// The reconcilers of the layers with this name. Two at most: one is used, and two mean that none may be.
    reconcilers: Vec<(Arc<Policy>, Arc<dyn Reconciler>)>,
}

impl RouteState {
    pub(super) fn counts(&self) -> Counts {
        self.counters.snapshot().plus(self.observed.snapshot().as_observed())
    }

    pub(super) fn latency(&self) -> RouteLatency {
        let both = [&self.counters, &self.observed];
        let [handler, observed] = both.map(|counters| counters.handler.snapshot());
        RouteLatency { handler: handler.plus(observed), request: self.counters.request.snapshot() }
    }
}

/// The routes by name.
#[derive(Default)]
pub(super) struct Routes {
    named: BTreeMap<Arc<str>, RouteState>,
    /// How many of them only [`Once::run`](super::Once::run) has named.
    of_run: usize,
}

impl Routes {
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &RouteState)> {
        self.named.iter()
    }

    /// The counts of a policy that changes nothing about its route: such a one was learnt before.
    fn known(&self, policy: &Policy, generation: usize) -> Option<Arc<Counters>> {
        let route = match self.named.get(policy.route()) {
            Some(route) => Some(route).filter(|route| route.has(policy, generation)),
            None => self.others().filter(|others| others.hold_max >= policy.hold_max()),
        };
        route.map(|route| route.counters_of(policy))
    }

    /// All that were not named because there are too many.
    fn others(&self) -> Option<&RouteState> {
        self.named.get(OTHER_ROUTES)
    }

    fn learn(&mut self, policy: &Policy, generation: usize) -> Arc<Counters> {
        let new = || RouteState::new(policy, generation);
        let route = self.named.entry(policy.route().clone()).or_insert_with(new);
        route.learn(policy, generation);
        route.counters_of(policy)
    }

    /// The same for a route that a layer or an earlier call has named, or for which there is room; else the counts of all
    /// others.
    fn learn_of_run(&mut self, policy: &Policy, generation: usize) -> Arc<Counters> {
        if self.named.contains_key(policy.route()) {
            return self.learn(policy, generation);
        }
        if self.of_run < ROUTES_OF_RUN_MAX {
            self.of_run += 1;
            return self.learn(policy, generation);
        }
        let others = self.named.entry(OTHER_ROUTES.into()).or_insert_with(|| {
            tracing::warn!(
                routes = ROUTES_OF_RUN_MAX,
                route = &**policy.route(),
                "too many routes: this one and further ones are counted together. Name the kind of an operation, not what it is about"
            );
            RouteState::new(policy, generation)
        });
        others.hold_max = others.hold_max.max(policy.hold_max());
        others.counters_of(policy)
    }

    /// Of a route that is not known the longest that any unnamed one asks for: a record says no more than its name.
    fn hold_max(&self, name: &str) -> Duration {
        let of_others = || self.others().map(|others| others.hold_max);
        match self.named.get(name) {
            Some(route) => route.hold_max,
            None => HOLD_MAX_DEFAULT.max(of_others().unwrap_or_default()),
        }
    }
}

impl RouteState {
    fn new(policy: &Policy, generation: usize) -> Self {
        Self {
            generation,
            hold_max: policy.hold_max(),
            counters: Arc::default(),
            observed: Arc::default(),
            audit_ids: Vec::new(),
            reconcilers: Vec::new(),
        }
    }

    fn learn(&mut self, policy: &Policy, generation: usize) {
        if self.generation != generation {
            self.generation = generation;
            self.hold_max = policy.hold_max();
            self.reconcilers.clear();
            self.audit_ids.clear();
        }
        self.hold_max = self.hold_max.max(policy.hold_max());
        if !policy.audit_ids().is_empty() {
            self.audit_ids = policy.audit_ids().to_vec();
        }
    }

    /// Whether learning the policy would change nothing.
    fn has(&self, policy: &Policy, generation: usize) -> bool {
        let ids = policy.audit_ids();
        self.generation == generation
            && self.hold_max >= policy.hold_max()
            && (ids.is_empty() || ids == self.audit_ids)
    }

    fn counters_of(&self, policy: &Policy) -> Arc<Counters> {
        match policy.mode() {
            Mode::Enforce => self.counters.clone(),
            Mode::Observe => self.observed.clone(),
        }
    }
}

impl Inner {
    /// Registers the route of a layer's policy before its first request, and lowers `response_bytes_max` to what the store
    /// takes.
    #[cfg(feature = "tower")]
    pub(crate) fn learn(&self, policy: Policy) -> (Arc<Policy>, Arc<Counters>) {
        let (policy, generation) = (self.fitted(policy), self.generation.load(Ordering::Relaxed));
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        let counters = routes.learn(&policy, generation);
        (Arc::new(policy), counters)
    }

    /// The same for one operation. Only the first of a route, and one whose policy changes it, waits for other callers.
    pub(super) fn learn_of_run(&self, policy: Policy) -> (Arc<Policy>, Arc<Counters>) {
        let (policy, generation) = (self.fitted(policy), self.generation.load(Ordering::Relaxed));
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let known = routes.known(&policy, generation);
        drop(routes);
        let counters = known.unwrap_or_else(|| {
            let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
            routes.learn_of_run(&policy, generation)
        });
        (Arc::new(policy), counters)
    }

    /// The policy within what the store takes. The background thread hears of a shorter lease.
    fn fitted(&self, policy: Policy) -> Policy {
        let lease = policy.lease();
        if lease < *self.lease_min.borrow() {
            self.lease_min.send_if_modified(|shortest| {
                let is_shorter = lease < *shortest;
                *shortest = lease.min(*shortest);
                is_shorter
            });
        }
        let store_max = self.store.limits().body_bytes_max;
        let body_bytes_max = policy.response_bytes_max().min(store_max);
        policy.with_response_bytes_max(body_bytes_max)
    }

    /// Registers the reconciler of a route, for questions in the background.
    pub(crate) fn learn_reconciler(&self, policy: &Arc<Policy>, reconciler: Arc<dyn Reconciler>) {
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        // Two are enough to know that the name is not unique.
        if let Some(route) =
            routes.named.get_mut(policy.route()).filter(|route| route.reconcilers.len() < 2)
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
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        match routes.named.get(route)?.reconcilers.as_slice() {
            [(policy, one)] if one.asks_by_itself() => Some((policy.clone(), one.clone())),
            _ => None,
        }
    }

    pub(super) fn hold_max(&self, route: &str) -> Duration {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).hold_max(route)
    }

    /// Where the answers of a route have business ids, for the audit trail.
    pub(super) fn audit_ids(&self, route: &str) -> Vec<Pointer> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        routes.named.get(route).map_or_else(Vec::new, |route| route.audit_ids.clone())
    }
}

/// Routes that [`Once::run`](super::Once::run) names; each takes some kilobytes for its counts, for as long as the engine lives.
const ROUTES_OF_RUN_MAX: usize = 1_000;
/// The name under which all further ones are counted.
const OTHER_ROUTES: &str = "(other routes)";
const HOLD_MAX_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

#[cfg(test)]
#[cfg(all(feature = "memory", feature = "tower"))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::Once;
    use crate::store::memory::MemoryStore;

    fn policy(route: &str, hold_max_s: u64) -> Policy {
        let ttl = Duration::from_secs(1);
        let policy = Policy::default().with_ttl(ttl).with_route(route);
        policy.with_hold_max(Duration::from_secs(hold_max_s))
    }

    // threat K25
    #[test]
    fn a_known_route_is_found_beside_others_who_look() {
        let once = Once::new(MemoryStore::new());
        let id: Pointer = "/id".parse().unwrap();
        let with_ids = policy("ship", 60).with_audit_ids([id]);
        for number in 0..=ROUTES_OF_RUN_MAX {
            once.inner.learn_of_run(policy(&format!("r{number}"), 60));
        }
        once.inner.learn(policy("ship", 60));
        once.inner.learn_of_run(with_ids.clone());
        let looking = once.inner.routes.read().unwrap();
        let (found, all_found) = mpsc::channel();
        let inner = once.inner.clone();
        thread::spawn(move || {
            for policy in [policy("ship", 60), policy("ship", 7), with_ids, policy("one more", 60)]
            {
                inner.learn_of_run(policy);
                found.send(()).unwrap();
            }
            // A longer time is learnt, so this one waits.
            inner.learn_of_run(policy("ship", 90));
            found.send(()).unwrap();
        });
        let wait = Duration::from_secs(30);
        for number in 0..4 {
            assert!(all_found.recv_timeout(wait).is_ok(), "{number} waits for who only looks");
        }
        assert_eq!(all_found.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(looking);
        all_found.recv_timeout(wait).unwrap();
        let hold_max = |route| once.inner.hold_max(route).as_secs();
        assert_eq!((hold_max("ship"), once.inner.audit_ids("ship").len()), (90, 1));
    }

    #[test]
    fn what_is_not_named_is_held_for_the_longest_time_that_was_asked_for() {
        let once = Once::new(MemoryStore::new());
        for number in 0..ROUTES_OF_RUN_MAX {
            once.inner.learn_of_run(policy(&format!("r{number}"), 60));
        }
        let (month, days) = (HOLD_MAX_DEFAULT.as_secs(), 24 * 60 * 60);
        let hold_max = |route| once.inner.hold_max(route).as_secs();
        assert_eq!((hold_max("r7"), hold_max("other")), (60, month));
        for (asked, held) in [(60, month), (90 * days, 90 * days), (60, 90 * days)] {
            once.inner.learn_of_run(policy("other", asked));
            assert_eq!(hold_max("other"), held);
        }
        // A layer always has its own.
        once.inner.learn(policy("a layer", 120));
        assert_eq!(hold_max("a layer"), 120);
    }
}
