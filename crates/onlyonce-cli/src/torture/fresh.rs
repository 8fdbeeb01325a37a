//! How often the target fails by itself: plain requests with new keys, each alone and undisturbed. Pure.
//!
//! 1. A failure is laid to an attack only if it is more frequent after the attack than among these requests.
//! 2. More frequent means that chance alone would do the same in fewer than one of a thousand runs, by Fisher's exact test
//!    of one side. A service that fails one request in six by itself is not accused of it.
//! 3. 429 is the target's own limit of requests: it counts neither as a failure nor as a success.

use std::fmt;

use super::observed::{Event, Observed};
use super::plan::{Kind, Shot, Step};
use super::wire::{Answer, Outcome};

/// Failures among requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) failed: u32,
    pub(crate) of: u32,
}

/// What became of plain requests with new keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fresh {
    /// Answers that broke off, before the crowd.
    pub(crate) broken: Rate,
    /// Requests without a 2xx answer, before the crowd.
    pub(crate) before: Rate,
    /// And after it.
    pub(crate) after: Rate,
    /// What the first one that failed after the crowd got.
    pub(crate) failed_with: Option<String>,
}

impl Rate {
    pub(crate) fn note(&mut self, is_failed: bool) {
        self.of += 1;
        self.failed += u32::from(is_failed);
    }

    /// Whether failures are more frequent here than there, and not by chance.
    pub(crate) fn is_above(self, there: Self) -> bool {
        self.by_chance(there) < SIGNIFICANCE
    }

    /// Whether `is_above` would say so if all had failed here.
    pub(crate) fn could_be_above(self, there: Self) -> bool {
        Self { failed: self.of, ..self }.is_above(there)
    }

    /// Whether failures are more frequent here, but perhaps by chance.
    pub(crate) fn is_doubtful(self, there: Self) -> bool {
        (SIGNIFICANCE..SUSPICION).contains(&self.by_chance(there))
    }

    /// How likely so many failures or more are here, if each request of here and there fails with the same probability:
    /// the upper tail of the hypergeometric distribution.
    fn by_chance(self, there: Self) -> f64 {
        let (failed, of) = (self.failed + there.failed, self.of + there.of);
        let all = ln_ways(of, failed);
        let ways = |here: u32| ln_ways(self.of, here) + ln_ways(there.of, failed - here) - all;
        (self.failed..=failed.min(self.of)).map(|here| ways(here).exp()).sum()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.failed, self.of)
    }
}

/// The logarithm of the number of ways to choose so many of these.
fn ln_ways(of: u32, chosen: u32) -> f64 {
    (0..chosen).map(|at| (f64::from(of - at) / f64::from(at + 1)).ln()).sum()
}

impl Fresh {
    pub(crate) fn seen(observed: &[Observed]) -> Self {
        let is_crowd = |observed: &Observed| observed.trial.kind == Kind::Hot;
        let crowd_at = observed.iter().position(is_crowd).unwrap_or(observed.len());
        let mut fresh = Self::default();
        for (at, event) in observed.iter().enumerate() {
            match alone(event) {
                Some(event) if at < crowd_at => fresh.note_before(event),
                Some(event) => fresh.note_after(event),
                None => {}
            }
        }
        fresh
    }

    fn note_before(&mut self, event: &Event) {
        self.broken.note(matches!(event.outcome, Outcome::Broken(_)));
        if !is_limited(event) {
            self.before.note(!event.is_success());
        }
    }

    fn note_after(&mut self, event: &Event) {
        if is_limited(event) {
            return;
        }
        self.after.note(!event.is_success());
        if !event.is_success() && self.failed_with.is_none() {
            self.failed_with = Some(event.outcome.brief());
        }
    }
}

/// The first request of a key, if nothing was done to it, behind it or beside it.
fn alone(observed: &Observed) -> Option<&Event> {
    let trial = &observed.trial;
    let (Some(Step::One(shot) | Step::Insist(shot)), None) =
        (trial.steps.first(), trial.misbehaviour)
    else {
        return None;
    };
    let is_plain = *shot == Shot::plain(&trial.key);
    let has_hook = trial.steps.iter().any(Step::has_hook);
    if is_plain && !has_hook { observed.events.first() } else { None }
}

fn is_limited(event: &Event) -> bool {
    event.answer().is_some_and(|answer: &Answer| answer.status == TOO_MANY_REQUESTS)
}

/// Chance alone accuses in fewer runs than this.
const SIGNIFICANCE: f64 = 0.001;
/// What chance does more often than this is no reason to doubt.
const SUSPICION: f64 = 0.05;
const TOO_MANY_REQUESTS: u16 = 429;

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(failed: u32, of: u32) -> Rate {
        Rate { failed, of }
    }

    #[test]
    fn the_probability_is_that_of_fishers_exact_test() {
        // The tea of Fisher's lady: three of four right by chance in 17 of 70 cases.
        assert!((rate(3, 4).by_chance(rate(1, 4)) - 17.0 / 70.0).abs() < 1e-12);
        assert!((rate(4, 4).by_chance(rate(0, 4)) - 1.0 / 70.0).abs() < 1e-12);
        assert!((rate(0, 12).by_chance(rate(5, 12)) - 1.0).abs() < 1e-9);
        assert!((rate(12, 12).by_chance(rate(12, 12)) - 1.0).abs() < 1e-9);
        assert!((rate(0, 0).by_chance(rate(1, 6)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn as_often_as_before_is_not_above_and_always_is() {
        assert!(!rate(2, 12).is_above(rate(2, 12)));
        assert!(!rate(5, 12).is_above(rate(3, 17)));
        assert!(rate(12, 12).is_above(rate(3, 17)));
        assert!(rate(12, 12).is_above(rate(0, 5)));
    }

    // Exact, not by sampling: every outcome of both samples, weighed by its probability.
    #[test]
    fn a_target_that_fails_by_itself_is_accused_in_fewer_than_one_of_a_thousand_runs() {
        for percent in [1, 5, 16, 17, 30, 50, 80, 99] {
            for before in [5, 17, 40] {
                let accused: f64 = outcomes(before, percent)
                    .flat_map(|(there, likely)| {
                        outcomes(12, percent).map(move |(here, also)| (there, here, likely * also))
                    })
                    .filter(|(there, here, _)| here.is_above(*there))
                    .map(|(.., likely)| likely)
                    .sum();
                assert!(accused < SIGNIFICANCE, "{percent} % of {before}: {accused}");
            }
        }
    }

    fn outcomes(of: u32, percent: u32) -> impl Iterator<Item = (Rate, f64)> {
        let chance = f64::from(percent) / 100.0;
        (0..=of).map(move |failed| {
            let (fails, does_not) = (chance.ln(), (1.0 - chance).ln());
            let likely =
                ln_ways(of, failed) + f64::from(failed) * fails + f64::from(of - failed) * does_not;
            (rate(failed, of), likely.exp())
        })
    }
}
