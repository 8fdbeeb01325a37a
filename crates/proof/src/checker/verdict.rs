//! What the checker says.

use std::collections::BTreeMap;
use std::fmt;

/// The verdict over a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How many operations there were.
    pub operations: usize,
    /// How many of them had a request on its way to, or in, what a fault hit.
    pub faulted: usize,
    /// How many lines of each kind there were.
    pub counts: BTreeMap<String, usize>,
    /// The first operation that breaks a promise.
    pub violation: Option<Violation>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `I1` to `I12`; `malformed` for a history that contradicts itself.
    pub property: &'static str,
    /// What is wrong.
    pub what: String,
    /// Every line of the operation, with the faults meanwhile.
    pub timeline: String,
}

impl Verdict {
    pub(super) fn unreadable(text: &str) -> Self {
        let what = "a line that is no event".to_owned();
        let violation = Violation { property: "malformed", what, timeline: text.to_owned() };
        Self { violation: Some(violation), ..Self::default() }
    }

    /// How often `what` has happened.
    pub fn count(&self, what: &str) -> usize {
        match what {
            "operations" => self.operations,
            "faulted operations" => self.faulted,
            _ => self.counts.get(what).copied().unwrap_or_default(),
        }
    }

    /// Too little of something is a violation like any other.
    pub(super) fn demand(&mut self, needs: &[(impl AsRef<str>, usize)]) {
        for (what, least) in needs {
            let (what, seen) = (what.as_ref(), self.count(what.as_ref()));
            if seen < *least && self.violation.is_none() {
                let what = format!("{seen} of \"{what}\", and {least} are needed");
                let timeline = String::new();
                self.violation = Some(Violation { property: "I12", what, timeline });
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations, {} of them faulted", self.operations, self.faulted)?;
        for (what, count) in &self.counts {
            write!(f, ", {count} {what}")?;
        }
        match &self.violation {
            None => write!(f, "; no violation"),
            Some(Violation { property, what, timeline }) => {
                write!(f, "\n{property} is broken: {what}\n{timeline}")
            }
        }
    }
}
