//! Counts how often operations are begun, and refuses those that are past a limit of their route.
//!
//! Nodes count together in the store's meter, where it has one. Each node counts for itself too: where the meter does not
//! answer, the node goes by its own count, and says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quick_cache::unsync::Cache;
use tracing::{info, warn};

use super::{Ask, Inner};
use crate::velocity::Allowance;

/// The counts of this process: until when each limit is used, on this node's boot clock.
#[derive(Debug)]
pub(crate) struct Meters {
    used_until: Mutex<Cache<[u8; 16], Duration>>,
    /// The store's meter did not answer when it was last asked.
    is_alone: AtomicBool,
}

impl Default for Meters {
    fn default() -> Self {
        Self { used_until: Mutex::new(Cache::new(SUBJECTS_MAX)), is_alone: AtomicBool::new(false) }
    }
}

impl Meters {
    /// Counts one use of each, or of none: then how long to wait.
    fn admit(&self, allowances: &[Allowance], now: Duration) -> Option<Duration> {
        let mut used_until = self.used_until.lock().unwrap_or_else(PoisonError::into_inner);
        let uses = allowances.iter().map(|allowance| {
            let until = used_until.get(allowance.subject()).copied();
            allowance.used(until, now)
        });
        let uses: Vec<_> = uses.collect();
        let wait = uses.iter().filter_map(|used| used.err()).max();
        if wait.is_none() {
            for (allowance, until) in allowances.iter().zip(uses.into_iter().flatten()) {
                used_until.insert(*allowance.subject(), until);
            }
        }
        wait
    }

    /// Whether this node goes by its own count although the store has a meter.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    fn say(&self, is_alone: bool) {
        match (self.is_alone.swap(is_alone, Ordering::Relaxed), is_alone) {
            (false, true) => warn!(
                "Redis did not count for the velocity limits: each node goes by its own count until Redis answers again"
            ),
            (true, false) => info!("Redis counts for the velocity limits of all nodes again"),
            _ => {}
        }
    }
}

impl Inner {
    /// Counts an operation that is about to begin; or how long its caller must wait.
    pub(super) async fn admit(&self, ask: &Ask) -> Option<Duration> {
        let by_this_node = self.meters.admit(&ask.allowances, self.clock.boot());
        let Some(by_all) = self.store.admit(&ask.allowances).await else {
            return by_this_node;
        };
        self.meters.say(by_all.is_err());
        by_all.unwrap_or(by_this_node)
    }
}

/// Subjects that a process remembers. Past it the least used are forgotten, and begin anew.
const SUBJECTS_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowance(subject: u8, rate: &str) -> Allowance {
        Allowance::new([subject; 16], rate.parse().unwrap())
    }

    const NOW: Duration = Duration::from_secs(100);

    /// R168
    #[test]
    fn r168_a_use_that_one_limit_refuses_counts_in_none() {
        let meters = Meters::default();
        let (card, caller) = (allowance(1, "1/min"), allowance(2, "2/min"));
        assert_eq!(meters.admit(&[card, caller], NOW), None);
        for _ in 0..10 {
            assert_eq!(meters.admit(&[card, caller], NOW), Some(Duration::from_secs(60)));
        }
        assert_eq!(meters.admit(&[allowance(3, "1/min"), caller], NOW), None);
        let wait = meters.admit(&[allowance(4, "1/min"), caller], NOW);
        assert_eq!(wait, Some(Duration::from_secs(30)));
    }

    #[test]
    fn subjects_are_bounded() {
        let meters = Meters::default();
        for n in 0..2 * SUBJECTS_MAX as u128 {
            let allowance = Allowance::new(n.to_be_bytes(), "1/d".parse().unwrap());
            assert_eq!(meters.admit(&[allowance], NOW), None);
        }
        assert!(meters.used_until.lock().unwrap().len() <= SUBJECTS_MAX);
    }
}
