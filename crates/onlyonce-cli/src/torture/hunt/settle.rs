//! Counts executions once everything has come to rest.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Hunt;
use crate::torture::observed::Observed;
use crate::torture::plan::Kind;

impl Hunt {
    /// Counts for all trials from this one on, after a time in which late executions would have come.
    pub(super) async fn settle(&mut self, first: usize) {
        if !self.oracle.counts() || first == self.observed.len() {
            return;
        }
        sleep(self.time * 2 + QUIET).await;
        let until = Instant::now() + self.limits.settle;
        for at in first..self.observed.len() {
            loop {
                let observed = &self.observed[at];
                let count = self.oracle.count(&observed.trial.marker).await;
                let is_expected = observed.events.iter().any(|event| event.is_success());
                let is_late = is_expected && count == Ok(0) && Instant::now() < until;
                if !is_late {
                    self.counted(at, count).await;
                    break;
                }
                sleep(QUIET).await;
            }
        }
    }

    async fn counted(&mut self, at: usize, count: Result<u64, String>) {
        let trial = &self.observed[at].trial;
        let needs_other = matches!(trial.kind, Kind::Changed | Kind::NearKey);
        let other = match needs_other {
            true => Some(self.oracle.count(&trial.other_marker).await),
            false => None,
        };
        let arrivals = self.oracle.arrivals(&trial.marker);
        let observed: &mut Observed = &mut self.observed[at];
        observed.arrivals = arrivals;
        match count {
            // An execution does not become undone: a smaller number is of a counter that was restarted.
            Ok(count) => observed.count = observed.count.max(Some(count)),
            Err(error) => observed.count_error = Some(error),
        }
        match other {
            Some(Ok(count)) => observed.other_count = observed.other_count.max(Some(count)),
            Some(Err(error)) => observed.count_error = Some(error),
            None => {}
        }
    }

    /// Counts everything once more: an execution may come late.
    pub(crate) async fn settle_all(&mut self) {
        self.settle(0).await;
    }
}

/// How long nothing must happen.
const QUIET: Duration = Duration::from_millis(100);
