//! Notices keys that come again, with an equal request, from another caller: the sign that callers are told apart by
//! something that changes between two tries, such as a token that is refreshed. Nothing is refused for it, because two
//! callers may choose the same key.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache as Bounded;
use tracing::warn;

use super::{Ask, Inner};
use crate::fingerprint::FingerprintMode;
use crate::key::KeySource;
use crate::policy::Policy;
use crate::scope::{Scope, ScopePart};

/// Who began the last operations, as digests that mean nothing outside of this process.
#[derive(Debug)]
pub(crate) struct ChangedPrincipals {
    hasher: RandomState,
    begun: Bounded<u64, Begun>,
    /// When a log line last told of one, in milliseconds of the boot clock.
    told_at_ms: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Begun {
    principal: u64,
    at: Duration,
}

impl Default for ChangedPrincipals {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            begun: Bounded::new(OPERATIONS_MAX),
            told_at_ms: AtomicU64::new(NEVER),
        }
    }
}

impl ChangedPrincipals {
    /// A digest of what tells operations apart, besides the caller, the key and what the fingerprint has.
    pub(crate) fn place(&self, policy: &Policy, scope: &Scope<'_>) -> u64 {
        let mut hash = self.hasher.build_hasher();
        for part in policy.scope() {
            match part {
                ScopePart::Host => scope.host.hash(&mut hash),
                ScopePart::Header(name) => {
                    let values = scope.headers.get_all(name).iter();
                    values.for_each(|value| value.as_bytes().hash(&mut hash));
                }
                ScopePart::Principal
                | ScopePart::Method
                | ScopePart::Path
                | ScopePart::LiteralPath
                | ScopePart::Json(_) => {}
            }
        }
        hash.finish()
    }

    /// Whether another caller began an operation with this key and an equal request, while its answer is kept.
    fn is_changed(&self, ask: &Ask, place: u64, boot: Duration) -> bool {
        let (route, key) = (ask.policy.route(), ask.key.as_str());
        let operation = (route, place, key, beginning(&ask.fingerprint.canonical));
        let operation = self.hasher.hash_one(operation);
        let begun = Begun { principal: beginning(ask.principal.as_bytes()), at: boot };
        let last = self.begun.get(&operation);
        self.begun.insert(operation, begun);
        last.is_some_and(|last| {
            let is_kept = boot.saturating_sub(last.at) < ask.policy.ttl();
            is_kept && last.principal != begun.principal
        })
    }

    /// Whether a log line is due: one a minute at most.
    fn is_to_tell(&self, boot: Duration) -> bool {
        let now_ms = u64::try_from(boot.as_millis()).unwrap_or(NEVER - 1);
        let told_at_ms = self.told_at_ms.load(Ordering::Relaxed);
        let is_due = told_at_ms == NEVER || now_ms.saturating_sub(told_at_ms) >= PAUSE_MS;
        let swap = || {
            let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            self.told_at_ms.compare_exchange(told_at_ms, now_ms, order, failed).is_ok()
        };
        is_due && swap()
    }
}

impl Inner {
    /// Takes note of who begins an operation.
    pub(super) fn note_principal(&self, ask: &Ask) {
        let (boot, changed) = (self.clock.boot(), &self.changed_principals);
        let place = ask.place.filter(|_| is_compared(&ask.policy));
        if !place.is_some_and(|place| changed.is_changed(ask, place, boot)) {
            return;
        }
        ask.counters.changed_principal.one();
        if changed.is_to_tell(boot) {
            let (route, principal) = (ask.policy.route(), ask.principal.short());
            warn!(%route, principal, "a key and its request came again from another caller, and were executed again: if that was a retry, callers are told apart by something that changes between two tries; look at `principal` of this route (docs/identity.md)");
        }
    }
}

/// Whether the key says that two requests are one operation, and the caller that they are two. A key that is made from the
/// request says nothing.
fn is_compared(policy: &Policy) -> bool {
    let is_made =
        |source: &KeySource| matches!(source, KeySource::Fingerprint | KeySource::Body { .. });
    policy.fingerprint().mode != FingerprintMode::None
        && policy.scope().contains(&ScopePart::Principal)
        && !policy.key_from().iter().any(is_made)
}

/// Of a digest that is not to be forged, enough to tell it from others.
fn beginning(digest: &[u8; 32]) -> u64 {
    digest.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// Operations that are remembered.
const OPERATIONS_MAX: usize = 65_536;
const PAUSE_MS: u64 = 60_000;
const NEVER: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_due_once_a_minute() {
        let changed = ChangedPrincipals::default();
        let due = |s| changed.is_to_tell(Duration::from_secs(s));
        assert_eq!([0, 1, 59, 60, 61, 200].map(due), [true, false, false, true, false, true]);
    }
}
