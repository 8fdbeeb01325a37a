//! Something that is counted each time, and said once in a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What is counted and said.
#[derive(Debug, Default)]
pub(crate) struct Occasional {
    count: AtomicU64,
    /// When it was last said, and how often it had happened by then.
    told: Mutex<Option<(Instant, u64)>>,
}

impl Occasional {
    /// How often it happened.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts once more. The first time, and then at most once a minute, `tell` is told how often it happened since.
    pub(crate) fn note(&self, tell: impl FnOnce(u64)) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_due, before) = match *told {
            None => (true, 0),
            Some((at, before)) => (at.elapsed() >= PAUSE, before),
        };
        if is_due {
            *told = Some((Instant::now(), count));
            tell(count.saturating_sub(before));
        }
    }
}

const PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_said_the_first_time_and_then_once_a_minute() {
        let happened = Occasional::default();
        let mut told = Vec::new();
        for _ in 0..130 {
            happened.note(|times| told.push(times));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!((told, happened.count()), (vec![1, 60, 60], 130));
    }
}
