//! A clock that stands still until it is told to move.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, StoreTime};

/// A clock for tests. A clone is the same clock.
///
/// ```
/// use std::time::Duration;
///
/// use onlyonce::clock::Clock;
/// use onlyonce::store::conformance::ManualClock;
///
/// let clock = ManualClock::new();
/// let (wall, boot) = (clock.wall(), clock.boot());
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.wall().since_ms(wall), 2_000);
/// assert_eq!(clock.boot() - boot, Duration::from_secs(2));
/// clock.set_wall(wall);
/// assert_eq!(clock.boot() - boot, Duration::from_secs(2));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Hands>>);

#[derive(Clone, Copy, Debug)]
struct Hands {
    wall: StoreTime,
    boot: Duration,
}

impl ManualClock {
    /// Some day in 2026, an hour after the machine booted.
    pub fn new() -> Self {
        let hands =
            Hands { wall: StoreTime::from_ms(1_780_000_000_000), boot: Duration::from_secs(3_600) };
        Self(Arc::new(Mutex::new(hands)))
    }

    /// Time passes: on both clocks.
    pub fn advance(&self, duration: Duration) {
        self.set(|hands| {
            hands.wall = hands.wall.plus(duration);
            hands.boot = hands.boot.saturating_add(duration);
        });
    }

    /// Someone sets the wall clock, forward or back. The boot clock does not notice.
    pub fn set_wall(&self, wall: StoreTime) {
        self.set(|hands| hands.wall = wall);
    }

    /// The boot clock says this from now on. A clock must not run backward, but a test may make it.
    pub fn set_boot(&self, boot: Duration) {
        self.set(|hands| hands.boot = boot);
    }

    fn set(&self, change: impl FnOnce(&mut Hands)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn hands(&self) -> Hands {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> StoreTime {
        self.hands().wall
    }

    fn boot(&self) -> Duration {
        self.hands().boot
    }
}
