//! The clocks: the store's, which anyone may set, and the node's own.

use std::time::Duration;

use onlyonce::clock::{Reading, StoreTime};

/// The store's clock, the node's, and what the node trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Hash)]
pub(crate) struct Clocks {
    pub(crate) boot_ms: i64,
    pub(crate) offset_ms: i64,
    /// The reading by which the store's clock was furthest behind: store, then node.
    lowest: (i64, i64),
}

impl Clocks {
    pub(crate) fn store(&self) -> StoreTime {
        StoreTime::from_ms(self.boot_ms + self.offset_ms)
    }

    pub(crate) fn boot(&self) -> Duration {
        Duration::from_millis(self.boot_ms.unsigned_abs())
    }

    /// The time that a node trusts, which has read the store's clock again and again.
    pub(crate) fn trusted(&self) -> StoreTime {
        self.lowest().trusted(self.store(), self.boot())
    }

    /// Time passes, or someone sets the store's clock; then a node reads it.
    pub(crate) fn move_by(&mut self, boot_ms: i64, offset_ms: i64) {
        self.boot_ms += boot_ms;
        self.offset_ms += offset_ms;
        let now = Reading::new(self.store(), self.boot());
        let lowest = self.lowest().lower(now);
        if lowest.estimate(self.boot()) == self.store() {
            self.lowest = (self.store().as_ms(), self.boot_ms);
        }
    }

    fn lowest(&self) -> Reading {
        let (store, boot) = self.lowest;
        Reading::new(StoreTime::from_ms(store), Duration::from_millis(boot.unsigned_abs()))
    }
}

pub(crate) const LEASE_MS: i64 = 30_000;
/// How long a copy in memory may answer: `CACHE_AGE_MAX`.
pub(crate) const COPY_MS: i64 = 60_000;
/// For how long a route sends an unknown outcome again.
pub(crate) const REDRIVE_MS: i64 = 23 * 3_600_000;
pub(crate) const TTL_MS: i64 = 24 * 3_600_000;
/// A claim may not arrive after it, and the lease still has its margin; twice of it is more than the lease.
pub(crate) const SHORT_MS: i64 = 20_000;
pub(crate) const LONG_MS: i64 = 25 * 3_600_000;
/// How far someone sets the store's clock: further than a time to live.
pub(crate) const JUMP_MS: i64 = 48 * 3_600_000;
