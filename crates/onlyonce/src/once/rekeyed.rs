//! Notices clients that seem to make a new key for each retry: the same caller sends the same request under another key
//! within a minute. Nothing is refused for it, because two equal orders may both be meant.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quick_cache::sync::Cache as Bounded;
use quick_cache::unsync::Cache;
use tracing::warn;

use super::{Ask, Inner};
use crate::clock::StoreTime;
use crate::fingerprint::FingerprintMode;
use crate::scope::{OperationId, Principal};

/// A caller whose client seems to make a new key for each retry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RekeyingCaller {
    /// The route of its requests.
    pub route: Arc<str>,
    /// Who it is.
    pub principal: Principal,
    /// How many of its requests came again under another key, since this process started.
    pub times: u64,
    /// When that last happened.
    pub last_at: StoreTime,
}

/// The last operation of each request, and the callers whose requests came again under another key.
#[derive(Debug)]
pub(crate) struct Rekeyed {
    hasher: RandomState,
    begun: Bounded<u64, Begun>,
    callers: Mutex<Cache<(Arc<str>, Principal), RekeyingCaller>>,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    id: OperationId,
    at: Duration,
}

impl Default for Rekeyed {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            begun: Bounded::new(REQUESTS_MAX),
            callers: Mutex::new(Cache::new(CALLERS_MAX)),
        }
    }
}

impl Rekeyed {
    /// Whether the same caller began an operation with an equal request under another key just before.
    fn is_rekeyed(&self, ask: &Ask, boot: Duration) -> bool {
        let request = (ask.policy.route(), &ask.principal, &ask.fingerprint.canonical);
        let request = self.hasher.hash_one(request);
        let last = self.begun.get(&request);
        self.begun.insert(request, Begun { id: ask.id, at: boot });
        last.is_some_and(|last| last.id != ask.id && boot.saturating_sub(last.at) < WITHIN)
    }

    fn name(&self, ask: &Ask, now: StoreTime) {
        let (route, principal) = (ask.policy.route().clone(), ask.principal);
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = (route.clone(), principal);
        if let Some(mut known) = callers.get_mut(&caller) {
            known.times += 1;
            known.last_at = now;
            return;
        }
        warn!(%route, principal = principal.short(), "a caller sends equal requests under new keys: its client seems to make a new key for each retry");
        callers.insert(caller, RekeyingCaller { route, principal, times: 1, last_at: now });
    }

    /// The callers, the most frequent first.
    pub(crate) fn callers(&self) -> Vec<RekeyingCaller> {
        let callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut callers: Vec<_> = callers.iter().map(|(_, caller)| caller.clone()).collect();
        callers.sort_by_key(|caller| std::cmp::Reverse(caller.times));
        callers
    }
}

impl Inner {
    /// Takes note of an operation that begins, and of a caller whose client seems to make a new key for each retry.
    pub(super) fn note_begun(&self, ask: &Ask) {
        let is_compared = ask.policy.fingerprint().mode != FingerprintMode::None;
        if is_compared && self.rekeyed.is_rekeyed(ask, self.clock.boot()) {
            ask.counters.rekeyed.one();
            self.rekeyed.name(ask, self.trusted_now());
        }
    }
}

/// Requests that are remembered.
const REQUESTS_MAX: usize = 65_536;
/// Callers that are remembered.
const CALLERS_MAX: usize = 1_000;
/// A client that retries does so within this.
const WITHIN: Duration = Duration::from_secs(60);
