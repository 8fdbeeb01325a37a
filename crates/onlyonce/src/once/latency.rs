//! How long things take: histograms that are written without a lock, and read for metrics and summaries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::counts::Counter;

/// How long the calls of one kind took since the engine started.
///
/// ```
/// use std::time::Duration;
/// use onlyonce::Latency;
///
/// assert_eq!(Latency::default().quantile(0.95), None);
/// assert_eq!(Latency::BOUNDS[0], Duration::from_micros(50));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// How many calls took at most as long as the bound with the same place in [`BOUNDS`](Self::BOUNDS), and longer
    /// than the bound before it. The last place counts the calls that took longer than every bound.
    pub buckets: [u64; BUCKETS],
    /// The time of all calls together.
    pub sum: Duration,
}

impl Latency {
    /// The upper bounds of the buckets.
    pub const BOUNDS: [Duration; BUCKETS - 1] = BOUNDS;

    /// How many calls there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// About how long a part `q` of the calls took at most; 0.5 is the median. Interpolated within a bucket, so that
    /// the error is at most the width of the bucket. `None` if there were no calls.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * count as f64;
        let mut below = 0;
        for (place, &calls) in self.buckets.iter().enumerate() {
            if calls > 0 && (below + calls) as f64 >= rank {
                let low = place.checked_sub(1).map_or(Duration::ZERO, |before| BOUNDS[before]);
                let high = BOUNDS.get(place).copied().unwrap_or(low);
                let part = (rank - below as f64).max(0.0) / calls as f64;
                return Some(low + (high - low).mul_f64(part));
            }
            below += calls;
        }
        None
    }

    /// The calls of both.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        let buckets = std::array::from_fn(|place| self.buckets[place] + more.buckets[place]);
        Self { buckets, sum: self.sum + more.sum }
    }

    /// The calls since `earlier`, an earlier reading of the same latency.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let calls = |place: usize| self.buckets[place].saturating_sub(earlier.buckets[place]);
        Self { buckets: std::array::from_fn(calls), sum: self.sum.saturating_sub(earlier.sum) }
    }
}

/// What a call of the store is for, how long such calls took, and how many of them failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreCallLatency {
    /// `claim`, `load`, `swap`, `renew`, `scan` or `sweep`.
    pub call: &'static str,
    /// How long the calls took, failed ones included.
    pub latency: Latency,
    /// How many calls the store did not answer, or answered with an error.
    pub failed: u64,
}

/// How long the handlers and the guarded requests of one route took since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteLatency {
    /// The handler, or the upstream: from the call to the whole answer.
    pub handler: Latency,
    /// Guarded requests as a whole: from the head of the request to the head of its answer, replays included.
    pub request: Latency,
}

/// How long things took since the engine started: see [`Once::latencies`](crate::Once::latencies).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Latencies {
    /// The calls of the store, by kind.
    pub store_calls: Vec<StoreCallLatency>,
    /// The handler, or the upstream: from the call to the whole answer.
    pub handler: Latency,
    /// Guarded requests as a whole: from the head of the request to the head of its answer, replays included.
    pub request: Latency,
}

impl Latencies {
    /// All calls of the store together.
    pub fn store(&self) -> Latency {
        self.store_calls.iter().fold(Latency::default(), |sum, call| sum.plus(call.latency))
    }
}

/// A [`Latency`] that is being written.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, took: Duration) {
        // A duration of 580 years does not matter.
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let place = BOUNDS_NS.partition_point(|bound| *bound < nanoseconds);
        self.buckets[place].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Latency {
        let read = |place: usize| self.buckets[place].load(Ordering::Relaxed);
        let sum = Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed));
        Latency { buckets: std::array::from_fn(read), sum }
    }
}

/// The calls of one kind: how long they took, and how many failed.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    time: Histogram,
    failed: Counter,
}

impl Calls {
    pub(crate) fn record(&self, took: Duration, is_failed: bool) {
        self.time.record(took);
        if is_failed {
            self.failed.one();
        }
    }

    pub(crate) fn snapshot(&self, call: &'static str) -> StoreCallLatency {
        StoreCallLatency { call, latency: self.time.snapshot(), failed: self.failed.value() }
    }
}

const BUCKETS: usize = 19;

const BOUNDS_NS: [u64; BUCKETS - 1] = {
    let us = [
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
    ];
    let mut ns = [0; BUCKETS - 1];
    let mut place = 0;
    while place < us.len() {
        ns[place] = us[place] * 1_000;
        place += 1;
    }
    ns
};

const BOUNDS: [Duration; BUCKETS - 1] = {
    let mut bounds = [Duration::ZERO; BUCKETS - 1];
    let mut place = 0;
    while place < bounds.len() {
        bounds[place] = Duration::from_nanos(BOUNDS_NS[place]);
        place += 1;
    }
    bounds
};

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_call_is_counted_in_the_bucket_whose_bound_it_does_not_pass() {
        let histogram = Histogram::default();
        for took in [Duration::ZERO, Duration::from_micros(50), ms(1), ms(1), ms(60_000)] {
            histogram.record(took);
        }
        let latency = histogram.snapshot();
        assert_eq!((latency.buckets[0], latency.buckets[4]), (2, 2));
        assert_eq!(latency.buckets[BUCKETS - 1], 1, "longer than every bound");
        assert_eq!(latency.sum, Duration::from_micros(60_002_050));
        assert_eq!(latency.count(), 5);
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let histogram = Histogram::default();
        (0..90).for_each(|_| histogram.record(ms(3)));
        (0..10).for_each(|_| histogram.record(ms(80)));
        let latency = histogram.snapshot();
        let between = |q, low, high| {
            let found = latency.quantile(q).unwrap();
            assert!(found > ms(low) && found <= ms(high), "{q}: {found:?}");
        };
        between(0.5, 2, 5);
        between(0.95, 50, 100);
        between(1.0, 50, 100);
        assert_eq!(Latency::default().quantile(0.5), None);
    }

    #[test]
    fn a_call_that_passes_every_bound_is_told_as_the_last_bound() {
        let histogram = Histogram::default();
        histogram.record(ms(90_000));
        assert_eq!(histogram.snapshot().quantile(0.5), Some(ms(30_000)));
    }

    #[test]
    fn two_readings_tell_what_happened_in_between() {
        let histogram = Histogram::default();
        histogram.record(ms(3));
        let earlier = histogram.snapshot();
        histogram.record(ms(80));
        let since = histogram.snapshot().since(earlier);
        assert_eq!((since.count(), since.sum), (1, ms(80)));
        assert_eq!(since.plus(earlier), histogram.snapshot());
    }
}
