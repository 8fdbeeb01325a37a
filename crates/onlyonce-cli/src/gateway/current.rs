//! The configuration in force, and the routes that each serving thread has made of it: replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

use super::app::Routes;
use crate::config::Config;
use crate::tls::Secured;

/// What is in force. A clone sees the same.
#[derive(Clone, Debug)]
pub(super) struct Current(Arc<RwLock<Arc<InForce>>>);

/// One configuration, and its routes for each thread.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) config: Config,
    pub(super) secured: Secured,
    pub(super) threads: Vec<Arc<Routes>>,
}

impl Current {
    pub(super) fn new(first: InForce) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(first))))
    }

    /// What is in force now. Whoever holds it keeps it, whatever comes after.
    pub(super) fn now(&self) -> Arc<InForce> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The routes of one thread.
    pub(super) fn routes(&self, thread: usize) -> Arc<Routes> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).threads[thread].clone()
    }

    /// For every request that comes after this, on all threads at once.
    pub(super) fn replace(&self, next: InForce) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }
}
