//! What the engine knows of the routes: their counts, and the policies and reconcilers that have their names.

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

impl Inner {
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
        let generation = self.generation.load(Ordering::Relaxed);
        let route = routes.entry(policy.route().clone()).or_insert_with(|| RouteState {
            generation,
            hold_max: policy.hold_max(),
            counters: Arc::default(),
            observed: Arc::default(),
            audit_ids: Vec::new(),
            reconcilers: Vec::new(),
        });
        if route.generation != generation {
            route.generation = generation;
            route.hold_max = policy.hold_max();
            route.reconcilers.clear();
            route.audit_ids.clear();
        }
        route.hold_max = route.hold_max.max(policy.hold_max());
        if !policy.audit_ids().is_empty() {
            route.audit_ids = policy.audit_ids().to_vec();
        }
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

    pub(super) fn hold_max(&self, route: &str) -> Duration {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.get(route).map_or(HOLD_MAX_DEFAULT, |route| route.hold_max)
    }

    /// Where the answers of a route have business ids, for the audit trail.
    pub(super) fn audit_ids(&self, route: &str) -> Vec<Pointer> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.get(route).map_or_else(Vec::new, |route| route.audit_ids.clone())
    }
}

const HOLD_MAX_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
