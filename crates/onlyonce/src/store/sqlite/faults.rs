//! Commits that fail when a test says so.

use std::sync::atomic::{AtomicU8, Ordering};

/// What happens to the next commits.
#[derive(Default)]
pub(super) struct Faults {
    before: AtomicU8,
    after: AtomicU8,
}

impl Faults {
    /// The next `count` commits fail and do not happen.
    pub(super) fn fail_before(&self, count: u8) {
        self.before.store(count, Ordering::SeqCst);
    }

    /// The next `count` commits happen and are reported as failed.
    pub(super) fn fail_after(&self, count: u8) {
        self.after.store(count, Ordering::SeqCst);
    }

    pub(super) fn before_commit(&self) -> Result<(), ()> {
        spend(&self.before)
    }

    pub(super) fn after_commit(&self) -> Result<(), ()> {
        spend(&self.after)
    }
}

fn spend(left: &AtomicU8) -> Result<(), ()> {
    let spent = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    spent.map_or(Ok(()), |_| Err(()))
}
