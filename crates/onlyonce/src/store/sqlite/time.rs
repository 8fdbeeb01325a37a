//! The time of the store: the wall clock, but never backward while the store is open.
//!
//! Rows are appended in the order of their claims, and the sweep relies on that order. If the clock is set back between
//! two openings, the rows written before are swept late, never early.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::{Clock, StoreTime};

/// One per store, shared by its threads.
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    /// The highest time that was given out, in milliseconds.
    highest: AtomicI64,
}

impl Time {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, highest: AtomicI64::new(i64::MIN) }
    }

    pub(super) fn now(&self) -> StoreTime {
        let wall = self.clock.wall().as_ms();
        let seen = self.highest.fetch_max(wall, Ordering::AcqRel);
        StoreTime::from_ms(seen.max(wall))
    }
}
