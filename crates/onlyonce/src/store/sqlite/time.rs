//! The store's time: the wall clock, which never runs backward here until someone says that it was wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::clock::{Clock, StoreTime};

/// One per store, shared by its threads.
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    /// The highest time that was ever told, in milliseconds.
    highest: AtomicI64,
    held: AtomicBool,
}

impl Time {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, highest: AtomicI64::new(i64::MIN), held: AtomicBool::new(false) }
    }

    pub(super) fn now(&self) -> StoreTime {
        let wall = self.clock.wall().as_ms();
        let seen = self.highest.fetch_max(wall, Ordering::AcqRel);
        StoreTime::from_ms(seen.max(wall))
    }

    /// Time is at least this: a row says so.
    pub(super) fn raise(&self, at: StoreTime) {
        self.highest.fetch_max(at.as_ms(), Ordering::AcqRel);
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Whether nothing expires. Letting go trusts the wall clock again, however far back it is.
    pub(super) fn hold(&self, held: bool) {
        if !held {
            let wall = self.clock.wall().as_ms();
            self.highest.store(wall, Ordering::Release);
        }
        self.held.store(held, Ordering::Release);
    }

    /// What the file says at open.
    pub(super) fn hold_as_found(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    pub(super) fn wall(&self) -> StoreTime {
        self.clock.wall()
    }
}
