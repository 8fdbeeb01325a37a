//! The store's time: the wall clock, which never runs backward while the store is open.
//!
//! Rows of a class are appended in the order of their time, and the sweep deletes from the old end. Rows of a
//! clock that was set back between two openings are out of order: they are swept later, not earlier.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::{Clock, StoreTime};

/// One per store, shared by its threads.
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    /// The highest time that was told, in milliseconds.
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
