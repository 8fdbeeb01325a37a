//! A clock that runs as the system's does, and can be moved forward.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce::clock::{Clock, StoreTime, SystemClock};

/// A clone is the same clock.
#[derive(Clone, Default)]
pub(crate) struct TestClock(Arc<Ahead>);

#[derive(Default)]
struct Ahead {
    wall_ms: AtomicU64,
    boot_ms: AtomicU64,
}

impl TestClock {
    /// Time passes: on both clocks.
    pub(crate) fn pass(&self, time: Duration) {
        add(&self.0.boot_ms, time);
        add(&self.0.wall_ms, time);
    }

    /// Someone sets the wall clock forward; no time passes.
    pub(crate) fn jump(&self, time: Duration) {
        add(&self.0.wall_ms, time);
    }

    /// Someone puts the wall clock back that was set forward.
    pub(crate) fn jump_back(&self, time: Duration) {
        self.0.wall_ms.fetch_sub(ms(time), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn wall(&self) -> StoreTime {
        SystemClock.wall().plus(read(&self.0.wall_ms))
    }

    fn boot(&self) -> Duration {
        SystemClock.boot() + read(&self.0.boot_ms)
    }
}

fn add(ahead: &AtomicU64, time: Duration) {
    ahead.fetch_add(ms(time), Ordering::SeqCst);
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("a test moves time by less than an age")
}

fn read(ahead: &AtomicU64) -> Duration {
    Duration::from_millis(ahead.load(Ordering::SeqCst))
}
