//! Counts the keys of each caller, and the bytes that are kept for them, so that no caller fills the store.
//!
//! A process counts the operations that it began itself since it started: for each caller and route, in slots of a part of
//! the time to live. So a key stops counting between its expiry and a slot after it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::unsync::Cache;
use tracing::warn;

use crate::policy::{LIVE_BYTES_MAX, LIVE_KEYS_MAX, Mode, Policy};
use crate::scope::Principal;

/// The live keys of all callers.
#[derive(Debug)]
pub(crate) struct LiveKeys(Mutex<Cache<Caller, Window>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Caller {
    route: Arc<str>,
    principal: Principal,
    /// Routes of one name may keep their keys for different times.
    slot_time: Duration,
}

/// A key that counts from its first attempt on, whatever becomes of that.
#[derive(Debug)]
pub(crate) struct LiveKey {
    live_keys: Arc<LiveKeys>,
    caller: Caller,
    slot: u64,
}

impl Default for LiveKeys {
    fn default() -> Self {
        Self(Mutex::new(Cache::new(CALLERS_MAX)))
    }
}

impl LiveKeys {
    /// How long until the caller's first keys count no longer, if it is at a limit.
    pub(crate) fn full_for(
        &self,
        policy: &Policy,
        principal: Principal,
        boot: Duration,
    ) -> Option<Duration> {
        let limits = Maxima::of(policy, principal)?;
        let caller = Caller::of(policy, principal);
        let mut window = self.lock().get(&caller).copied()?;
        window.advance(caller.slot_time, boot);
        limits.are_reached(&window).then(|| window.next_free(boot))
    }

    /// Counts one key more; `None` where there is no limit.
    ///
    /// # Errors
    /// How long until the caller's first keys count no longer, if it is at a limit.
    pub(crate) fn add(
        self: &Arc<Self>,
        policy: &Policy,
        principal: Principal,
        boot: Duration,
    ) -> Result<Option<LiveKey>, Duration> {
        let Some(limits) = Maxima::of(policy, principal) else {
            return Ok(None);
        };
        let caller = Caller::of(policy, principal);
        let mut windows = self.lock();
        let mut window = windows.get(&caller).copied().unwrap_or_default();
        window.advance(caller.slot_time, boot);
        if limits.are_reached(&window) {
            return Err(window.next_free(boot));
        }
        window.slots[window.place()].keys += 1;
        if limits.are_reached(&window) && !std::mem::replace(&mut window.is_told, true) {
            let ((keys, bytes), route, principal) =
                (window.sums(), policy.route(), principal.short());
            warn!(%route, principal, keys, bytes, "a caller is at its limit of live keys: its new keys get 429 until some expire");
        }
        windows.insert(caller.clone(), window);
        Ok(Some(LiveKey { live_keys: self.clone(), caller, slot: window.newest }))
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
    /// `bytes` of its answer are kept.
    pub(crate) fn keeps(self, bytes: usize) {
        self.live_keys.change(&self.caller, self.slot, |slot| slot.bytes += bytes as u64);
    }

    /// The key is free again: it counts no longer.
    pub(crate) fn uncount(self) {
        let uncount = |slot: &mut Slot| slot.keys = slot.keys.saturating_sub(1);
        self.live_keys.change(&self.caller, self.slot, uncount);
    }
}

impl Caller {
    fn of(policy: &Policy, principal: Principal) -> Self {
        Self { route: policy.route().clone(), principal, slot_time: slot_time(policy) }
    }
}

/// How much a caller may have.
#[derive(Clone, Copy, Debug)]
struct Maxima {
    keys: u64,
    bytes: u64,
}

impl Maxima {
    /// `None` where there is no limit.
    fn of(policy: &Policy, principal: Principal) -> Option<Self> {
        let keys = policy.live_keys_max().map_or(u64::MAX, |max| max.get().into());
        let bytes = policy.live_bytes_max().map_or(u64::MAX, |max| max.get());
        // Nobody cannot be told from nobody: one stranger would use up the default limits of all. A route that sets its own
        // means strangers too.
        let is_nobody = principal.is_anonymous();
        let unless = |limit: u64, default: u64| match is_nobody && limit == default {
            true => u64::MAX,
            false => limit,
        };
        let keys = unless(keys, LIVE_KEYS_MAX.into());
        let bytes = unless(bytes, LIVE_BYTES_MAX);
        let is_limited = (keys, bytes) != (u64::MAX, u64::MAX) && policy.mode() != Mode::Observe;
        is_limited.then_some(Self { keys, bytes })
    }

    fn are_reached(self, window: &Window) -> bool {
        let (keys, bytes) = window.sums();
        keys >= self.keys || bytes >= self.bytes
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
        self.slot_time = slot_time;
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
            add(seconds).unwrap().unwrap().keeps(10);
        }
        assert_eq!(add(3).unwrap_err(), Duration::from_secs(10));
        assert_eq!(add(12).unwrap_err(), Duration::from_secs(1));
        add(13).unwrap().unwrap().keeps(10);
        assert!(add(13).is_err());
        let bob = Principal::of("user", b"bob");
        assert!(live_keys.add(&policy(), bob, at(3)).is_ok(), "others are unharmed");
        assert!(live_keys.add(&policy().with_route("refunds"), ann(), at(3)).is_ok());
    }

    #[test]
    fn a_key_that_is_free_again_does_not_count() {
        let live_keys = Arc::new(LiveKeys::default());
        for _ in 0..10 {
            live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap().uncount();
        }
        let running: Vec<_> =
            (0..3).map(|_| live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap()).collect();
        assert!(live_keys.add(&policy(), ann(), at(0)).is_err(), "what runs counts");
        assert!(live_keys.full_for(&policy(), ann(), at(0)).is_some());
        running.into_iter().for_each(LiveKey::uncount);
        assert_eq!(live_keys.full_for(&policy(), ann(), at(0)), None);
        assert!(live_keys.add(&policy(), ann(), at(0)).is_ok());
    }

    #[test]
    fn strangers_without_credentials_share_no_limit_unless_the_route_sets_one() {
        let live_keys = Arc::new(LiveKeys::default());
        let add = |policy: &Policy| live_keys.add(policy, Principal::anonymous(), at(0));
        assert!(add(&Policy::default()).unwrap().is_none());
        assert!(add(&Policy::default().with_live_keys_max(1)).unwrap().is_some());
        assert!(add(&Policy::default().with_live_keys_max(1)).is_err());
    }

    #[test]
    fn r171_the_bytes_of_a_caller_are_bounded_too() {
        let live_keys = Arc::new(LiveKeys::default());
        live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap().keeps(1_000);
        assert!(live_keys.add(&policy(), ann(), at(1)).is_err());
        assert!(live_keys.add(&policy().with_live_bytes_max(0), ann(), at(1)).is_ok());
    }

    #[test]
    fn a_key_that_ends_long_after_its_slot_changes_nothing() {
        let live_keys = Arc::new(LiveKeys::default());
        let old = live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap();
        live_keys.add(&policy(), ann(), at(60)).unwrap().unwrap().keeps(0);
        old.uncount();
        let window = live_keys.lock().get_mut(&caller()).map(|window| window.sums());
        assert_eq!(window, Some((1, 0)));
    }

    fn caller() -> Caller {
        Caller::of(&policy(), ann())
    }

    #[test]
    fn another_time_to_live_has_a_count_of_its_own() {
        let live_keys = Arc::new(LiveKeys::default());
        let other = policy().with_ttl(at(0));
        for _ in 0..3 {
            live_keys.add(&policy(), ann(), at(0)).unwrap().unwrap().keeps(0);
            live_keys.add(&other, ann(), at(0)).unwrap().unwrap().keeps(0);
        }
        assert!(live_keys.add(&policy(), ann(), at(0)).is_err());
        assert!(live_keys.add(&other, ann(), at(0)).is_err());
    }
}
