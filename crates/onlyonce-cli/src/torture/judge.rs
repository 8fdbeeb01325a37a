//! What a trial proves. Pure: it looks at what happened and at the counts, and does nothing.
//!
//! 1. More than one execution of a key is a violation, whatever was answered meanwhile. A retry that is refused for ever
//!    is none.
//! 2. 2xx answers of one key and one caller are equal in status and body.
//! 3. A caller never gets the answer of another one.
//! 4. Another request under a used key is neither executed nor answered with the first one's answer.
//! 5. An answer that says success has an execution.
//! 6. An error does not turn into a success without an execution, and one that is replayed stays.
//! 7. A crowd with one key leaves the service well.

use super::observed::{Event, Observed};
use super::plan::{Caller, Kind, Program, Variant};
use super::wire::{Answer, Outcome};

/// What is promised to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Property {
    AtMostOnce,
    SameAnswer,
    Isolation,
    Mismatch,
    SuccessExecuted,
    ErrorsStay,
    HotKey,
}

impl Property {
    pub(crate) const ALL: [Self; 7] = [
        Self::AtMostOnce,
        Self::SameAnswer,
        Self::Isolation,
        Self::Mismatch,
        Self::SuccessExecuted,
        Self::ErrorsStay,
        Self::HotKey,
    ];

    /// For machines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AtMostOnce => "at-most-once",
            Self::SameAnswer => "same-answer",
            Self::Isolation => "isolation",
            Self::Mismatch => "mismatch",
            Self::SuccessExecuted => "success-executed",
            Self::ErrorsStay => "errors-stay",
            Self::HotKey => "hot-key",
        }
    }

    /// For people.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::AtMostOnce => "one key is executed at most once",
            Self::SameAnswer => "every 2xx answer of one key is the same",
            Self::Isolation => "no caller gets the answer of another",
            Self::Mismatch => "another request under a used key is refused",
            Self::SuccessExecuted => "an answer that says success has an execution",
            Self::ErrorsStay => "an error does not become a success by itself",
            Self::HotKey => "a crowd with one key does no harm",
        }
    }

    /// Whether executions must be counted to see that it holds.
    pub(crate) fn needs_counts(self) -> bool {
        matches!(self, Self::AtMostOnce | Self::SuccessExecuted | Self::Mismatch)
    }
}

/// What is known of the target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Two executions give two different answers.
    pub(crate) has_unique_answers: bool,
    /// Executions are counted.
    pub(crate) is_counted: bool,
}

/// A property, and how it was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) property: Property,
    pub(crate) summary: String,
}

/// What a trial proves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) violations: Vec<Violation>,
    /// Properties that could have been seen to fail.
    pub(crate) tested: Vec<Property>,
}

/// What the trial proves.
pub(crate) fn judge(observed: &Observed, facts: Facts) -> Judgement {
    let mut judgement = Judgement::default();
    match observed.trial.kind {
        Kind::Duplicates => duplicates(observed, facts, &mut judgement),
        Kind::Changed => changed(observed, facts, &mut judgement),
        Kind::NearKey => near_key(observed, facts, &mut judgement),
        Kind::Callers => callers(observed, facts, &mut judgement),
        Kind::Failing => failing(observed, &mut judgement),
        Kind::Hot => hot(observed, facts, &mut judgement),
        Kind::OddKey | Kind::Noted => {}
    }
    judgement
}

impl Judgement {
    fn violated(&mut self, property: Property, summary: String) {
        self.tested(property);
        self.violations.push(Violation { property, summary });
    }

    fn tested(&mut self, property: Property) {
        if !self.tested.contains(&property) {
            self.tested.push(property);
        }
    }
}

fn duplicates(observed: &Observed, facts: Facts, judgement: &mut Judgement) {
    let successes = observed.successes();
    executed_at_most(1, observed, judgement);
    same_answers(&successes, facts, judgement);
    success_is_executed(observed, !successes.is_empty(), judgement);
    let broken = observed.events.iter().find_map(|event| match &event.outcome {
        Outcome::Broken(told) => Some(told),
        _ => None,
    });
    // Elsewhere we disturb, or send so many that a service may well drop some.
    if let (Program::T1, Some(told), Some(_)) = (observed.trial.program, broken, successes.first())
    {
        let summary = format!(
            "the answer to an undisturbed retry broke off ({told}); the first one was whole"
        );
        judgement.violated(Property::SameAnswer, summary);
    }
}

fn executed_at_most(most: u64, observed: &Observed, judgement: &mut Judgement) {
    let Some(count) = observed.count else { return };
    if observed.events.len() > 1 && count > 0 {
        judgement.tested(Property::AtMostOnce);
    }
    if count > most {
        let (requests, label) = (observed.events.len(), &observed.trial.label);
        let plural = if requests == 1 { "request" } else { "requests" };
        let summary =
            format!("executed {count} times by {requests} {plural} with one key ({label})");
        judgement.violated(Property::AtMostOnce, summary);
    }
}

fn success_is_executed(observed: &Observed, is_success: bool, judgement: &mut Judgement) {
    let (Some(count), true) = (observed.count, is_success) else { return };
    judgement.tested(Property::SuccessExecuted);
    if count == 0 {
        let summary =
            format!("answered with success, and executed 0 times ({})", observed.trial.label);
        judgement.violated(Property::SuccessExecuted, summary);
    }
}

fn same_answers(successes: &[&Event], facts: Facts, judgement: &mut Judgement) {
    let mut answers: Vec<_> = successes.iter().filter_map(|event| event.answer()).collect();
    // Beside other answers of success, 202 says that the request is still in progress.
    if answers.iter().any(|answer| answer.status != ACCEPTED) {
        answers.retain(|answer| answer.status != ACCEPTED);
    }
    if answers.len() < 2 {
        return;
    }
    judgement.tested(Property::SameAnswer);
    let first = answers[0];
    let Some(other) = answers.iter().find(|answer| !is_same(first, answer)) else { return };
    let summary = format!("one key was answered `{}` and `{}`", first.brief(), other.brief());
    judgement.violated(Property::SameAnswer, summary);
    if !facts.is_counted && id_of(first).is_some() && id_of(first) != id_of(other) {
        let summary = format!(
            "two executions, by their answers: `{}` and `{}`",
            first.brief(),
            other.brief()
        );
        judgement.violated(Property::AtMostOnce, summary);
    }
}

fn is_same(first: &Answer, second: &Answer) -> bool {
    (first.status, &first.body) == (second.status, &second.body)
}

/// What names the thing that was made.
fn id_of(answer: &Answer) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    let members = body.as_object()?;
    let id = members.iter().find(|(name, _)| *name == "id" || name.ends_with("_id"))?.1;
    (!id.is_null()).then(|| id.to_string())
}

fn changed(observed: &Observed, facts: Facts, judgement: &mut Judgement) {
    let same = |event: &&Event| is_original(observed, event);
    let Some(first) = observed.events.iter().filter(same).find(|event| event.is_success()) else {
        return;
    };
    let others: Vec<_> = observed.events.iter().filter(|event| !same(event)).collect();
    if others.iter().any(|event| event.answer().is_some()) {
        judgement.tested(Property::Mismatch);
    }
    let executed =
        observed.other_count.unwrap_or_default() > 0 || observed.count.unwrap_or_default() > 1;
    if executed {
        let summary =
            format!("another request under the same key was executed ({})", observed.trial.label);
        judgement.violated(Property::Mismatch, summary);
        return;
    }
    let Some(told) = others.iter().find(|event| event.is_success()) else { return };
    let (Some(told), Some(first)) = (told.answer(), first.answer()) else { return };
    let what = match (told.body == first.body, facts.is_counted) {
        (true, _) => "was answered with the first one's answer",
        (false, true) => "was answered with success, although it was not executed",
        (false, false) => "was executed, by its answer",
    };
    let summary = format!("another request under the same key {what}: `{}`", told.brief());
    judgement.violated(Property::Mismatch, summary);
}

/// Whether the event is of the request that the trial began with.
fn is_original(observed: &Observed, event: &Event) -> bool {
    observed
        .trial
        .steps
        .iter()
        .flat_map(|step| step.shots())
        .next()
        .is_some_and(|first| first.variant == event.shot.variant)
}

fn near_key(observed: &Observed, facts: Facts, judgement: &mut Judgement) {
    let [first, second] = observed.events.as_slice() else { return };
    let (Some(one), Some(two)) = (first.answer(), second.answer()) else { return };
    if !one.is_success() || !two.is_success() {
        return;
    }
    judgement.tested(Property::Mismatch);
    let is_not_executed = observed.other_count == Some(0);
    if is_not_executed || (facts.has_unique_answers && one.body == two.body) {
        let summary = format!("a request got the answer of another key ({})", observed.trial.label);
        judgement.violated(Property::Mismatch, summary);
    }
}

fn callers(observed: &Observed, facts: Facts, judgement: &mut Judgement) {
    let of = |caller: Caller| -> Vec<&Event> {
        observed.successes().into_iter().filter(|event| event.shot.caller == caller).collect()
    };
    let (a, b) = (of(Caller::A), of(Caller::B));
    same_answers(&a, facts, judgement);
    same_answers(&b, facts, judgement);
    executed_at_most(2, observed, judgement);
    let has_answer = |event: &&Event| event.shot.caller == Caller::B && event.answer().is_some();
    if !a.is_empty() && observed.events.iter().any(|event| has_answer(&event)) {
        judgement.tested(Property::Isolation);
    }
    let (Some(first), Some(second)) = (a.first(), b.first()) else { return };
    let (Some(first), Some(second)) = (first.answer(), second.answer()) else { return };
    let is_told = facts.has_unique_answers && first.body == second.body;
    if is_told || observed.count.is_some_and(|count| count < 2) {
        let summary = format!(
            "the second caller got the first one's answer ({}): `{}`",
            observed.trial.label,
            second.brief()
        );
        judgement.violated(Property::Isolation, summary);
    }
}

fn failing(observed: &Observed, judgement: &mut Judgement) {
    executed_at_most(1, observed, judgement);
    let Some((failed, later)) = observed.events.split_first() else { return };
    let Some(error) = failed.answer().filter(|answer| !answer.is_success()) else {
        return success_is_executed(observed, !observed.successes().is_empty(), judgement);
    };
    if later.iter().any(|event| event.answer().is_some()) {
        judgement.tested(Property::ErrorsStay);
    }
    let again = later.iter().filter(|event| event.shot.variant == failed.shot.variant);
    let again: Vec<_> = again.filter_map(Event::answer).collect();
    let Some(success) = again.iter().find(|answer| answer.is_success()) else {
        return success_is_executed(observed, !observed.successes().is_empty(), judgement);
    };
    let is_same_text = !error.body.is_empty() && success.body == error.body;
    // The shim fails once: a second failure is the first one, kept, and a kept one must stay.
    let was_kept = observed.trial.misbehaviour.is_some() && is_same(error, again[0]);
    if observed.count == Some(0) || is_same_text || was_kept {
        let summary = format!("`{}` became `{}`", error.brief(), success.brief());
        judgement.violated(Property::ErrorsStay, summary);
    } else if failed.shot.variant == Variant::Refused && is_told_elsewhere(success, later) {
        let summary = format!(
            "a refused request was later answered with another one's `{}`",
            success.brief()
        );
        judgement.violated(Property::Mismatch, summary);
    }
}

/// Whether the right request got this answer.
fn is_told_elsewhere(answer: &Answer, events: &[Event]) -> bool {
    let right = events.iter().filter(|event| event.shot.variant == Variant::Same);
    right.filter_map(Event::answer).any(|other| is_same(other, answer))
}

fn hot(observed: &Observed, facts: Facts, judgement: &mut Judgement) {
    executed_at_most(1, observed, judgement);
    let successes = observed.successes();
    same_answers(&successes, facts, judgement);
    success_is_executed(observed, !successes.is_empty(), judgement);
    judgement.tested(Property::HotKey);
    if !super::hunt::is_crowd(&observed.trial) && successes.is_empty() {
        let told = observed.events.last().map_or_else(String::new, |event| match &event.outcome {
            Outcome::Answered(answer) => answer.brief(),
            Outcome::Cut(told) | Outcome::Broken(told) | Outcome::NotConnected(told) => {
                told.clone()
            }
            Outcome::TimedOut => "no answer in time".to_owned(),
        });
        judgement
            .violated(Property::HotKey, format!("after the crowd, a new request failed: {told}"));
    }
}

const ACCEPTED: u16 = 202;

#[cfg(test)]
mod tests;
