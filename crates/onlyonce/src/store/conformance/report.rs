//! What a store passed, failed and was spared.

use std::fmt;

use super::Case;
use super::check::{Outcome, Stop};

/// What became of every case that was run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    results: Vec<(Case, Verdict)>,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The promise held.
    Passed,
    /// It did not, and how.
    Failed(String),
    /// The factory declares that the store does not have this.
    Skipped(String),
}

impl Report {
    /// Every case with its verdict, in the order of the suite.
    pub fn results(&self) -> &[(Case, Verdict)] {
        &self.results
    }

    /// The names of the cases that passed.
    pub fn passed(&self) -> impl Iterator<Item = &'static str> {
        self.names(|verdict| *verdict == Verdict::Passed)
    }

    /// The names of the cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    /// The names of the cases that were skipped.
    pub fn skipped(&self) -> impl Iterator<Item = &'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    /// For tests.
    ///
    /// # Panics
    /// If a case failed. The message is the report.
    pub fn assert_passed(&self) {
        assert!(self.failed().next().is_none(), "{self}");
    }

    pub(super) fn add(&mut self, case: Case, verdict: Verdict) {
        self.results.push((case, verdict));
    }

    fn names(&self, wanted: fn(&Verdict) -> bool) -> impl Iterator<Item = &'static str> {
        let results = self.results.iter();
        results.filter_map(move |(case, verdict)| wanted(verdict).then_some(case.name))
    }
}

/// One line for each case that did not pass, and the counts.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (case, verdict) in &self.results {
            match verdict {
                Verdict::Passed => {}
                Verdict::Failed(why) => {
                    writeln!(f, "failed  {}: {why} (\"{}\")", case.name, case.promise)?;
                }
                Verdict::Skipped(why) => writeln!(f, "skipped {}: {why}", case.name)?,
            }
        }
        let (passed, failed) = (self.passed().count(), self.failed().count());
        write!(f, "{passed} passed, {failed} failed, ")?;
        write!(f, "{} skipped", self.skipped().count())
    }
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Ok(()) => Self::Passed,
            Err(Stop::Failed(why)) => Self::Failed(why),
            Err(Stop::Skipped(why)) => Self::Skipped(why.into()),
        }
    }
}
