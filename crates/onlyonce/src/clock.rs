//! Where time comes from: the store's wall clock, and this node's clock that nobody can set.

use std::time::Duration;

/// A moment on the store's clock: milliseconds since 1970. All arithmetic saturates.
///
/// ```
/// use onlyonce::clock::StoreTime;
///
/// let noon = StoreTime::from_ms(1_000);
/// assert_eq!(noon.plus_ms(500).as_ms(), 1_500);
/// assert_eq!(noon.plus_ms(i64::MAX), StoreTime::MAX);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreTime(i64);

impl StoreTime {
    /// Later than every other moment.
    pub const MAX: Self = Self(i64::MAX);

    /// The moment `ms` milliseconds after 1970 began.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// This moment moved by `ms`; the ends of time are not passed.
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// This moment moved forward by `duration`.
    pub fn plus(self, duration: Duration) -> Self {
        self.plus_ms(as_ms(duration))
    }

    /// Milliseconds from `earlier` to here; negative if `earlier` is later.
    pub const fn since_ms(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A duration in the unit of every stored time; what does not fit is the longest that does.
pub fn as_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The two clocks of a node. Replace it in tests; nothing else in this crate asks the system for the time.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, which someone may set. An embedded store's time.
    fn wall(&self) -> StoreTime;

    /// Time since the machine booted, sleep included. It must never run backward: a lease is counted on it.
    fn boot(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> StoreTime {
        let since = std::time::UNIX_EPOCH.elapsed();
        StoreTime::from_ms(since.map_or(0, as_ms))
    }

    #[cfg(target_os = "linux")]
    fn boot(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
        Duration::new(seconds, nanoseconds)
    }

    /// Without CLOCK_BOOTTIME: counted from the first call. It may stand still while the machine sleeps.
    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else must use")]
    fn boot(&self) -> Duration {
        static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        FIRST.get_or_init(std::time::Instant::now).elapsed()
    }
}

/// What a node knows of the store's clock: one reading, and its own clock at that reading.
///
/// It tells the store's time between two calls, and it tells when that clock was set forward: more
/// than [`CLOCK_JUMP_MS`] ahead of what the node's own clock allows.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    store: StoreTime,
    boot: Duration,
}

impl Reading {
    /// The store said `store` when the node's clock said `boot`.
    pub const fn new(store: StoreTime, boot: Duration) -> Self {
        Self { store, boot }
    }

    /// What the store's clock should say when the node's says `boot`.
    pub fn estimate(&self, boot: Duration) -> StoreTime {
        self.store.plus(boot.saturating_sub(self.boot))
    }

    /// Whether a reading of `store` at `boot` is further ahead of this one than time has passed.
    pub fn is_jump(&self, store: StoreTime, boot: Duration) -> bool {
        store.since_ms(self.estimate(boot)) > CLOCK_JUMP_MS
    }
}

/// How far the store's clock may run ahead of a node's before nothing lapses or expires any more.
pub const CLOCK_JUMP_MS: i64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Duration = Duration::from_secs(100);

    // threat B8
    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(StoreTime::MAX.plus_ms(1), StoreTime::MAX);
        assert_eq!(StoreTime::from_ms(i64::MIN).plus_ms(-1).as_ms(), i64::MIN);
        assert_eq!(StoreTime::from_ms(i64::MIN).since_ms(StoreTime::MAX), i64::MIN);
        assert_eq!(StoreTime::from_ms(5).plus(Duration::MAX), StoreTime::MAX);
    }

    // threat B6
    #[test]
    fn a_clock_that_runs_with_ours_has_not_jumped_however_long_it_was_not_read() {
        let reading = Reading::new(StoreTime::from_ms(0), BOOT);
        let day = Duration::from_secs(86_400);
        assert!(!reading.is_jump(StoreTime::from_ms(86_400_000), BOOT + day));
        assert!(!reading.is_jump(StoreTime::from_ms(86_460_000), BOOT + day));
        assert!(reading.is_jump(StoreTime::from_ms(86_460_001), BOOT + day));
    }

    // threat B7
    #[test]
    fn a_clock_set_back_is_no_jump() {
        let reading = Reading::new(StoreTime::from_ms(1_000_000), BOOT);
        assert!(!reading.is_jump(StoreTime::from_ms(0), BOOT));
    }

    #[test]
    fn the_system_boot_clock_never_runs_backward() {
        let first = SystemClock.boot();
        assert!(SystemClock.boot() >= first);
    }
}
