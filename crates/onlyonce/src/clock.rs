//! Where time comes from: the store's wall clock, and this node's clock that nobody can set.

mod text;

use std::time::Duration;

use crate::planted::{Planted, planted};

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

    /// As RFC 3339 writes it, in UTC: `2026-11-16T01:02:03.004Z`. What is later than the year 9999 is cut to its end.
    pub fn rfc3339(self) -> String {
        text::rfc3339(self)
    }

    /// The moment that RFC 3339 writes so, with any offset; `None` if it is none.
    ///
    /// ```
    /// use onlyonce::clock::StoreTime;
    ///
    /// let noon = StoreTime::from_rfc3339("2026-11-16T13:00:00+01:00");
    /// assert_eq!(noon.map(StoreTime::rfc3339).as_deref(), Some("2026-11-16T12:00:00.000Z"));
    /// ```
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        text::read(text)
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

    /// The one of the two by which the store's clock is further behind the node's.
    pub fn lower(self, other: Self) -> Self {
        if other.store < self.estimate(other.boot) { other } else { self }
    }

    /// What to make of `store`, read when the node's clock says `boot`: a clock may run fast by a thousandth, and be
    /// off by [`CLOCK_SLACK`]. If it is later than that, someone has set it forward, and the node goes by its own.
    pub fn trusted(&self, store: StoreTime, boot: Duration) -> StoreTime {
        let passed = boot.saturating_sub(self.boot);
        let latest = self.store.plus(passed + passed / CLOCK_DRIFT + CLOCK_SLACK);
        if store <= latest || planted(Planted::TrustedTimeOff) {
            store
        } else {
            self.estimate(boot)
        }
    }
}

/// How far the clock that `asked` tells is ahead of this node's: of the middle between question and answer.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) async fn ahead_ms<E>(
    asked: impl Future<Output = Result<StoreTime, E>>,
) -> Result<i64, E> {
    let before = SystemClock.wall();
    let its = asked.await?;
    let middle = before.plus_ms(SystemClock.wall().since_ms(before) / 2);
    Ok(its.since_ms(middle))
}

/// How far the store's clock may be ahead of a node's reckoning before the node stops following it.
pub const CLOCK_SLACK: Duration = Duration::from_secs(60);
/// One part in so many that a clock may run fast.
const CLOCK_DRIFT: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    // threat B8
    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(StoreTime::MAX.plus_ms(1), StoreTime::MAX);
        assert_eq!(StoreTime::from_ms(i64::MIN).plus_ms(-1).as_ms(), i64::MIN);
        assert_eq!(StoreTime::from_ms(i64::MIN).since_ms(StoreTime::MAX), i64::MIN);
        assert_eq!(StoreTime::from_ms(5).plus(Duration::MAX), StoreTime::MAX);
    }

    #[test]
    fn the_system_boot_clock_never_runs_backward() {
        let first = SystemClock.boot();
        assert!(SystemClock.boot() >= first);
    }
}
