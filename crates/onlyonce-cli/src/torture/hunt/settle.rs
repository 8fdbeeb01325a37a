//! Counts executions once everything has come to rest.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::Hunt;
use crate::torture::observed::Observed;
use crate::torture::plan::{Caller, Kind, Variant};

impl Hunt {
    /// Counts for all trials from this one on, after a time in which late executions would have come; those that are
    /// missing then are waited for.
    pub(super) async fn settle(&mut self, first: usize, patience: Duration) {
        if !self.oracle.counts() || first == self.observed.len() {
            return;
        }
        sleep(self.time * 2 + QUIET).await;
        let until = Instant::now() + patience;
        for at in first..self.observed.len() {
            loop {
                let counts = self.counts_of(at).await;
                if !is_late(&self.observed[at], &counts) || Instant::now() >= until {
                    self.counted(at, counts);
                    break;
                }
                sleep(QUIET).await;
            }
        }
    }

    /// The counts of the request, and of the changed one. The oracle may be as slow as the target, so this ends too.
    async fn counts_of(&self, at: usize) -> Counted {
        let trial = &self.observed[at].trial;
        let asking = async {
            let count = self.oracle.count(&trial.marker).await;
            let other = match trial.kind {
                Kind::Changed | Kind::NearKey => Some(self.oracle.count(&trial.other_marker).await),
                _ => None,
            };
            (count, other)
        };
        let late = |_| (Err("there was no time left to count them".to_owned()), None);
        timeout_at(self.until() + COUNTING_MAX, asking).await.unwrap_or_else(late)
    }

    fn counted(&mut self, at: usize, (count, other): Counted) {
        let arrivals = self.oracle.arrivals(&self.observed[at].trial.marker);
        let observed: &mut Observed = &mut self.observed[at];
        observed.arrivals = arrivals;
        // What could not be counted before may be counted now.
        observed.count_error = None;
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
        // Whatever was missing was waited for already.
        self.settle(0, Duration::ZERO).await;
    }
}

/// Of the request, and of the changed one.
type Counted = (Result<u64, String>, Option<Result<u64, String>>);

/// Whether a success was answered whose execution is not counted yet: the service may work later.
fn is_late(observed: &Observed, (count, other): &Counted) -> bool {
    let successes = observed.successes();
    let by =
        |caller: Caller| {
            u64::from(successes.iter().any(|event| {
                event.shot.caller == caller && event.shot.variant != Variant::OtherMarker
            }))
        };
    let is_near = observed.trial.kind == Kind::NearKey;
    let other_expected = successes.iter().any(|event| event.shot.variant == Variant::OtherMarker);
    count.as_ref().is_ok_and(|count| *count < by(Caller::A) + by(Caller::B))
        || (is_near && other_expected && *other == Some(Ok(0)))
}

/// How long nothing must happen.
const QUIET: Duration = Duration::from_millis(100);
/// How long after the end of the attacks executions are still counted.
const COUNTING_MAX: Duration = Duration::from_secs(30);
