//! The writers' pace: small batches go out together.
//!
//! The server flushes its log for one commit at a time, and for all that wait. Two writers that begin in
//! turn wait for each other's flush with half of the calls each; where flushes are slow, that halves the
//! cycles. So a writer with little to do begins when the others end, and whoever was just answered is given
//! a moment to come back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

#[derive(Default)]
pub(super) struct Pace {
    busy: AtomicUsize,
    ended: Notify,
}

/// A round under way.
pub(super) struct Round<'a>(&'a Pace);

impl Pace {
    /// Waits for a round that is under way to end, but not much longer than the last one took.
    pub(super) async fn join(&self, took: Duration) {
        let ended = self.ended.notified();
        if self.busy.load(Ordering::Acquire) > 0 {
            // Whether it ended or takes too long, we begin.
            let _ = timeout((took * 2).clamp(JOIN_MIN, JOIN_MAX), ended).await;
        }
    }

    pub(super) fn begin(&self) -> Round<'_> {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Round(self)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}

/// How long a writer may wait for another to end its round.
const JOIN_MIN: Duration = Duration::from_millis(1);
const JOIN_MAX: Duration = Duration::from_millis(20);
