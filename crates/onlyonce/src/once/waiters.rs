//! How many callers wait, within the limits of the process.

use std::collections::HashMap;
use std::hash::Hash;

use super::Limits;
use super::sync::{Arc, Mutex, PoisonError};
use crate::scope::{OperationId, Principal};

/// Counts the waiters: in all, for one key, and from one principal.
#[derive(Debug)]
pub(crate) struct Waiters {
    counts: Arc<Mutex<Counts>>,
    limits: Limits,
}

#[derive(Debug, Default)]
struct Counts {
    in_all: usize,
    per_key: HashMap<OperationId, usize>,
    per_principal: HashMap<Principal, usize>,
}

/// One waiter's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    counts: Arc<Mutex<Counts>>,
    id: OperationId,
    principal: Principal,
}

impl Waiters {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { counts: Arc::default(), limits }
    }

    /// How many wait now.
    pub(crate) fn len(&self) -> usize {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).in_all
    }

    /// A place for one that waits; `None` if there is no room.
    pub(crate) fn enter(&self, id: OperationId, principal: Principal) -> Option<Place> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let per_key = counts.per_key.get(&id).copied().unwrap_or(0);
        let per_principal = counts.per_principal.get(&principal).copied().unwrap_or(0);
        let has_room = counts.in_all < self.limits.waiters_max
            && per_key < self.limits.waiters_per_key_max
            && per_principal < self.limits.waiters_per_principal_max;
        has_room.then(|| {
            counts.in_all += 1;
            counts.per_key.insert(id, per_key + 1);
            counts.per_principal.insert(principal, per_principal + 1);
            Place { counts: self.counts.clone(), id, principal }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.in_all -= 1;
        leave(&mut counts.per_key, &self.id);
        leave(&mut counts.per_principal, &self.principal);
    }
}

fn leave<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
