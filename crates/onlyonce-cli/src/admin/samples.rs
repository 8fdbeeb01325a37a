//! What was counted in the last ten minutes, and since midnight.

use std::collections::VecDeque;

use onlyonce::clock::StoreTime;
use onlyonce::{Counts, Latency, Once};
use serde_json::{Value, json};

/// A bounded ring of samples, and the counts at the last midnight.
#[derive(Debug)]
pub(super) struct Samples {
    ring: VecDeque<(StoreTime, Sample)>,
    day: i64,
    at_midnight: Counts,
}

/// What was counted and measured until a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    counts: Counts,
    store: Latency,
    upstream: Latency,
}

impl Sample {
    pub(super) fn take(once: &Once) -> Self {
        let latencies = once.latencies();
        Self { counts: once.counts(), store: latencies.store(), upstream: latencies.handler }
    }
}

impl Samples {
    /// The day begins with the process, until midnight.
    pub(super) fn new(now: StoreTime, first: Sample) -> Self {
        let at_midnight = first.counts;
        Self { ring: VecDeque::from([(now, first)]), day: day(now), at_midnight }
    }

    pub(super) fn add(&mut self, now: StoreTime, sample: Sample) {
        if day(now) != self.day {
            self.day = day(now);
            self.at_midnight = sample.counts;
        }
        if self.ring.len() > SAMPLES_MAX {
            self.ring.pop_front();
        }
        self.ring.push_back((now, sample));
    }

    /// How much of `count` was counted since midnight UTC, or since the start.
    pub(super) fn today(&self, counts: &Counts, count: fn(&Counts) -> u64) -> u64 {
        count(counts).saturating_sub(count(&self.at_midnight))
    }

    /// The steps, each with what was counted in it.
    pub(super) fn series(&self) -> Value {
        let steps = || self.ring.iter().zip(self.ring.iter().skip(1));
        let column = |count: fn(&Counts) -> u64| -> Vec<u64> {
            let counted = steps().map(|((_, a), (_, b))| (count(&a.counts), count(&b.counts)));
            counted.map(|(a, b)| b.saturating_sub(a)).collect()
        };
        let p95 = |of: fn(&Sample) -> Latency| -> Vec<Option<f64>> {
            steps().map(|((_, a), (_, b))| quantile_ms(&of(b).since(of(a)), 0.95)).collect()
        };
        json!({
            "step_seconds": STEP_S,
            "times": steps().map(|(_, (at, _))| at.as_ms() / 1_000).collect::<Vec<_>>(),
            "executed": column(|counts| counts.executed),
            "replayed": column(|counts| counts.replayed),
            "refused": column(|counts| counts.reused + counts.in_progress),
            "unknown": column(|counts| counts.unknown),
            "store_p95_ms": p95(|sample| sample.store),
            "upstream_p95_ms": p95(|sample| sample.upstream),
        })
    }
}

/// In milliseconds; `None` where nothing was measured.
pub(super) fn quantile_ms(latency: &Latency, q: f64) -> Option<f64> {
    latency.quantile(q).map(|duration| duration.as_secs_f64() * 1_000.0)
}

fn day(now: StoreTime) -> i64 {
    now.as_ms().div_euclid(86_400_000)
}

/// Ten minutes of samples.
const SAMPLES_MAX: usize = 120;
/// Seconds from a sample to the next.
pub(super) const STEP_S: u64 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(executed: u64) -> Counts {
        let mut counts = Counts::default();
        counts.executed = executed;
        counts
    }

    fn sample(executed: u64) -> Sample {
        Sample { counts: counts(executed), ..Sample::default() }
    }

    #[test]
    fn a_series_tells_what_was_counted_in_each_step_and_stays_bounded() {
        let mut samples = Samples::new(StoreTime::from_ms(0), sample(0));
        for step in 1..=500_u32 {
            samples.add(StoreTime::from_ms(i64::from(step) * 5_000), sample(u64::from(step) * 3));
        }
        let series = samples.series();
        assert_eq!(series["executed"].as_array().unwrap().len(), SAMPLES_MAX);
        assert!(series["executed"].as_array().unwrap().iter().all(|count| *count == 3));
        assert_eq!(series["times"][SAMPLES_MAX - 1], 2_500);
    }

    #[test]
    fn a_day_begins_at_midnight() {
        let midnight = 86_400_000;
        let mut samples = Samples::new(StoreTime::from_ms(midnight - 1), sample(0));
        samples.add(StoreTime::from_ms(midnight - 1), sample(4));
        assert_eq!(samples.today(&counts(6), |counts| counts.executed), 6);
        samples.add(StoreTime::from_ms(midnight), sample(6));
        assert_eq!(samples.today(&counts(7), |counts| counts.executed), 1);
    }
}
