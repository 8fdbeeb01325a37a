//! Counts the keys of each caller, and the bytes that are kept for them, so that no caller fills the store.
//!
//! A process counts what it claimed itself since it started: for each caller and route, in slots of a part of the time to
//! live. So a key stops counting between its expiry and a slot after it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::unsync::Cache;
use tracing::warn;

use crate::policy::{Mode, Policy};
use crate::scope::Principal;

/// The live keys of all callers.
#[derive(Debug)]
pub(crate) struct LiveKeys(Mutex<Cache<Caller, Window>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Caller {
    route: Arc<str>,
    principal: Principal,
}

/// A key that counts from its claim on. Dropped, it counts no longer.
#[derive(Debug)]
pub(crate) struct LiveKey {
    live_keys: Arc<LiveKeys>,
    caller: Caller,
    slot: u64,
    is_kept: bool,
}

impl Default for LiveKeys {
    fn default() -> Self {
        Self(Mutex::new(Cache::new(CALLERS_MAX)))
    }
}

impl LiveKeys {
    /// Counts one key more; `None` where the policy has no limits.
    ///
    /// # Errors
    /// How long until the caller's first keys count no longer, if it is at a limit.
    pub(crate) fn add(
        self: &Arc<Self>,
        policy: &Policy,
        principal: Principal,
        boot: Duration,
    ) -> Result<Option<LiveKey>, Duration> {
        let keys_max = policy.live_keys_max().map_or(u64::MAX, |max| max.get().into());
        let bytes_max = policy.live_bytes_max().map_or(u64::MAX, |max| max.get());
        if (keys_max, bytes_max) == (u64::MAX, u64::MAX) || policy.mode() == Mode::Observe {
            return Ok(None);
        }
        let caller = Caller { route: policy.route().clone(), principal };
        let mut windows = self.lock();
        let mut window = windows.get(&caller).copied().unwrap_or_default();
        window.advance(slot_time(policy), boot);
        let (keys, bytes) = window.sums();
        let is_full = keys >= keys_max || bytes >= bytes_max;
        if !is_full {
            window.slots[window.place()].keys += 1;
        } else if !std::mem::replace(&mut window.is_told, true) {
            let (route, principal) = (policy.route(), principal.short());
            warn!(%route, principal, keys, bytes, "a caller is at its limit of live keys: its new keys get 429 until some expire");
        }
        windows.insert(caller.clone(), window);
        match is_full {
            true => Err(window.next_free(boot)),
            false => {
                let live_keys = self.clone();
                Ok(Some(LiveKey { live_keys, caller, slot: window.newest, is_kept: false }))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Cache<Caller, Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the slot that a key was counted in, if it still counts.
    fn change(&self, caller: &Caller, slot: u64, change: impl FnOnce(&mut Slot)) {
        let mut windows = self.lock();
        if let Some(mut window) = windows.get_mut(caller)
            && window.has(slot)
        {
            let place = place(slot);
            change(&mut window.slots[place]);
        }
    }
}

impl LiveKey {
    /// The operation has happened, and `bytes` of its answer are kept: it counts until it expires.
    pub(crate) fn kept(mut self, bytes: usize) {
        self.is_kept = true;
        self.live_keys.change(&self.caller, self.slot, |slot| slot.bytes += bytes as u64);
    }
}

impl Drop for LiveKey {
    fn drop(&mut self) {
        if !self.is_kept {
            let uncount = |slot: &mut Slot| slot.keys = slot.keys.saturating_sub(1);
            self.live_keys.change(&self.caller, self.slot, uncount);
        }
    }
}

/// What one caller has used in the last time to live.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    slot_time: Duration,
    /// The number of the newest slot, counted from the start of the boot clock.
    newest: u64,
    slots: [Slot; SLOTS],
    /// The log was told that the caller is at its limit.
    is_told: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    keys: u64,
    bytes: u64,
}

impl Window {
    /// Empties the slots that are over.
    fn advance(&mut self, slot_time: Duration, boot: Duration) {
        let newest = u64::try_from(boot.as_nanos() / slot_time.as_nanos()).unwrap_or(u64::MAX);
        if self.slot_time != slot_time {
            *self = Self { slot_time, newest, ..Self::default() };
        }
        let passed = newest.saturating_sub(self.newest).min(SLOTS as u64);
        for slot in 0..passed {
            self.slots[place(newest - slot)] = Slot::default();
        }
        self.is_told &= passed == 0;
        self.newest = self.newest.max(newest);
    }

    fn has(&self, slot: u64) -> bool {
        slot <= self.newest && self.newest - slot < SLOTS as u64
    }

    fn place(&self) -> usize {
        place(self.newest)
    }

    fn sums(&self) -> (u64, u64) {
        let sum = |sums: (u64, u64), slot: &Slot| (sums.0 + slot.keys, sums.1 + slot.bytes);
        self.slots.iter().fold((0, 0), sum)
    }

    /// How long until the oldest slot that has something is over.
    fn next_free(&self, boot: Duration) -> Duration {
        let oldest = (0..SLOTS as u64)
            .rev()
            .filter_map(|age| self.newest.checked_sub(age))
            .find(|slot| self.slots[place(*slot)].keys > 0);
        let over = oldest.unwrap_or(self.newest) + SLOTS as u64;
        let over_at = self.slot_time.saturating_mul(u32::try_from(over).unwrap_or(u32::MAX));
        over_at.saturating_sub(boot)
    }
}

fn place(slot: u64) -> usize {
    (slot % SLOTS as u64) as usize
}

/// One slot more than the time to live has: the newest has only begun.
fn slot_time(policy: &Policy) -> Duration {
    (policy.ttl() / (SLOTS as u32 - 1)).max(Duration::from_millis(1))
}

const SLOTS: usize = 13;
/// Callers that a process counts the keys of. Past it those that are seen least are forgotten, and begin anew.
const CALLERS_MAX: usize = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let policy = Policy::default().with_ttl(Duration::from_secs(12));
        policy.with_live_keys_max(3).with_live_bytes_max(1_000)
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    fn ann() -> Principal {
        Principal::of("user", b"ann")
    }

    /// R171
    #[test]
    fn r171_a_caller_has_so_many_keys_until_they_expire() {
        let live_keys = Arc::new(LiveKeys::default());
        let add = |seconds| live_keys.add(&policy(), ann(), at(seconds));
        for seconds in [0, 1, 2] {
            add(seconds).unwrap().unwrap().kept(10);
        }
        assert_eq!(add(3).unwrap_err(), Duration::from_secs(10));
        assert_eq!(add(12).unwrap_err(), Duration::from_secs(1));
        add(13).unwrap().unwrap().kept(10);
        assert!(add(13).is_err());
        let bob = Principal::of("user", b"bob");
        assert!(live_keys.add(&policy(), bob, at(3)).is_ok(), "others are unharmed");
        assert!(live_keys.add(&policy().with_route("refunds"), ann(), at(3)).is_ok());
    }

    #[test]
    fn a_key_that_was_not_executed_does_not_count() {
        let live_keys = Arc::new(LiveKeys::default());
        for _ in 0..10 {
            drop(live_keys.add(&policy(), ann(), at(0)).unwrap());
        }
        let running: Vec<_> =
            (0..3).map(|_| live_keys.add(&policy(), ann(), at(0)).unwrap()).collect();
        assert!(live_keys.add(&policy(), ann(), at(0)).is_err(), "what runs counts");
        drop(running);
        assert!(live_keys.add(&policy(), ann(), at(0)).is_ok());
    }

    #[test]
    fn r171_the_bytes_of_a_caller_are_bounded_too() {
        let live_keys = Arc::new(LiveKeys::default());
        live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap().kept(1_000);
        assert!(live_keys.add(&policy(), ann(), at(1)).is_err());
        assert!(live_keys.add(&policy().with_live_bytes_max(0), ann(), at(1)).is_ok());
    }

    #[test]
    fn a_key_that_ends_long_after_its_slot_changes_nothing() {
        let live_keys = Arc::new(LiveKeys::default());
        let old = live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap();
        live_keys.add(&policy(), ann(), at(60)).unwrap().unwrap().kept(0);
        drop(old);
        let window = live_keys.lock().get_mut(&caller()).map(|window| window.sums());
        assert_eq!(window, Some((1, 0)));
    }

    fn caller() -> Caller {
        Caller { route: policy().route().clone(), principal: ann() }
    }

    #[test]
    fn another_time_to_live_begins_anew() {
        let live_keys = Arc::new(LiveKeys::default());
        for _ in 0..3 {
            live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap().kept(0);
        }
        assert!(live_keys.add(&policy(), ann(), at(0)).is_err());
        assert!(live_keys.add(&policy().with_ttl(at(0)), ann(), at(0)).is_ok());
    }
}
