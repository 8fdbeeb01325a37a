//! How late it may be: the store's time, bounded by this node's own clock.
//!
//! What forgets goes by trusted time: expiry, sweeping, `hold_max`, `redrive_for` and quiet times. A node
//! that runs does not follow a store's clock that is set forward, nor one that was set back and is put right. Keys
//! then live longer, never shorter, until the node restarts; [`ahead_by`](TrustedTime::ahead_by) tells how far the clock is off.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Reading, StoreTime};

/// The store's time as this node trusts it.
pub(crate) struct TrustedTime {
    clock: Arc<dyn Clock>,
    readings: Mutex<Option<Readings>>,
}

#[derive(Clone, Copy)]
struct Readings {
    /// The one by which the store's clock was furthest behind: the first, unless that clock was set back since. What was
    /// written meanwhile would expire too early if the node followed the clock forward again.
    lowest: Reading,
    last: Reading,
}

impl TrustedTime {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, readings: Mutex::default() }
    }

    /// Takes note of the store's time in an answer that was asked for at `asked_at`, and returns the time to
    /// trust.
    ///
    /// The reading belongs to the moment before it was asked for, and is judged at the moment when it is here:
    /// a node that stood still in between must not take its own pause for a jump of the store.
    pub(crate) fn observe(&self, store: StoreTime, asked_at: Duration) -> StoreTime {
        let last = Reading::new(store, asked_at);
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        let lowest = readings.map_or(last, |readings| readings.lowest.lower(last));
        *readings = Some(Readings { lowest, last });
        lowest.trusted(store, self.clock.boot())
    }

    /// The trusted time now; `None` before the first answer of the store.
    pub(crate) fn now(&self) -> Option<StoreTime> {
        self.at(self.clock.boot())
    }

    /// [`now`](Self::now), for a caller that has read this node's clock.
    pub(crate) fn at(&self, boot: Duration) -> Option<StoreTime> {
        let readings = (*self.readings.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(readings.lowest.trusted(readings.last.estimate(boot), boot))
    }

    /// What the store's own clock says now, right or wrong: for moments that the store itself compares.
    pub(crate) fn store_now(&self) -> Option<StoreTime> {
        let (readings, boot) = self.readings()?;
        Some(readings.last.estimate(boot))
    }

    /// How far the store's clock is ahead of what this node trusts.
    pub(crate) fn ahead_by(&self) -> Duration {
        let Some((readings, boot)) = self.readings() else {
            return Duration::ZERO;
        };
        let store = readings.last.estimate(boot);
        let ahead_ms = store.since_ms(readings.lowest.trusted(store, boot));
        Duration::from_millis(u64::try_from(ahead_ms).unwrap_or(0))
    }

    fn readings(&self) -> Option<(Readings, Duration)> {
        let readings = *self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        Some((readings?, self.clock.boot()))
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use super::*;
    use crate::store::conformance::ManualClock;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// A store on a clock that can be set, and a node that has read it once.
    fn running_node() -> (ManualClock, TrustedTime) {
        let clock = ManualClock::new();
        let time = TrustedTime::new(Arc::new(clock.clone()));
        time.observe(clock.wall(), clock.boot());
        (clock, time)
    }

    fn read(clock: &ManualClock, time: &TrustedTime) -> StoreTime {
        time.observe(clock.wall(), clock.boot())
    }

    // threat B6
    #[test]
    fn a_clock_that_is_set_forward_is_not_followed() {
        let (clock, time) = running_node();
        let before = clock.wall();
        clock.set_wall(before.plus(DAY));
        assert_eq!(read(&clock, &time), before);
        assert_eq!(time.now(), Some(before));
        assert_eq!(time.store_now(), Some(before.plus(DAY)));
        assert_eq!(time.ahead_by(), DAY);
    }

    // threat B6
    #[test]
    fn a_clock_that_runs_with_ours_is_followed_however_long_it_was_not_read() {
        let (clock, time) = running_node();
        clock.advance(400 * DAY);
        assert_eq!(read(&clock, &time), clock.wall());
        assert_eq!(time.ahead_by(), Duration::ZERO);
    }

    #[test]
    fn a_clock_that_runs_a_thousandth_fast_is_followed() {
        let (clock, time) = running_node();
        let first = clock.wall();
        clock.advance(30 * DAY);
        clock.set_wall(first.plus(30 * DAY + 30 * DAY / 1_000));
        assert_eq!(read(&clock, &time), clock.wall());
    }

    // threat B7
    #[test]
    fn a_clock_that_is_set_back_is_followed() {
        let (clock, time) = running_node();
        clock.set_wall(clock.wall().plus_ms(-3_600_000));
        assert_eq!(read(&clock, &time), clock.wall());
        assert_eq!(time.ahead_by(), Duration::ZERO);
    }

    /// What was completed while it was an hour behind must not expire an hour early.
    // threats B6, B7
    #[test]
    fn a_clock_that_was_set_back_and_is_put_right_is_not_followed_forward() {
        let (clock, time) = running_node();
        let hour = Duration::from_secs(3_600);
        let right = clock.wall();
        let back = right.plus_ms(-3_600_000);
        clock.set_wall(back);
        read(&clock, &time);
        clock.set_wall(right);
        assert_eq!(read(&clock, &time), back);
        assert_eq!(time.ahead_by(), hour);
        clock.advance(hour);
        assert_eq!(read(&clock, &time), right, "its own clock goes on");
    }

    // threat B3
    #[test]
    fn a_node_that_stood_still_does_not_blame_the_store() {
        let (clock, time) = running_node();
        let asked_at = clock.boot();
        clock.advance(DAY);
        assert_eq!(time.observe(clock.wall(), asked_at), clock.wall());
    }
}
