//! What a trial proves. Pure: it looks at what happened and at the counts, and does nothing.
//!
//! 1. More than one execution of a key is a violation, whatever was answered meanwhile. A retry that is refused for ever
//!    is none.
//! 2. 2xx answers of one key and one caller are equal in status and body.
//! 3. A caller never gets the answer of another one.
//! 4. Another request under a used key is neither executed nor answered with the first one's answer.
//! 5. An answer that says success has an execution.
//! 6. An error does not turn into a success without an execution, and one that is replayed stays.
//! 7. A crowd with one key leaves the service well: new requests fail no more often than before it (`fresh`).
//!
//! One answer of 5xx, one broken connection or one timeout proves nothing: a target may fail now and then by itself.

use super::fresh::{Fresh, Rate};
use super::observed::{Event, Observed};
use super::plan::{Caller, Kind, Program, Variant};
use super::shim::Misbehaviour;
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Two executions give two different answers.
    pub(crate) has_unique_answers: bool,
    /// Executions are counted.
    pub(crate) is_counted: bool,
    /// How often it fails by itself.
    pub(crate) fresh: Fresh,
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
pub(crate) fn judge(observed: &Observed, facts: &Facts) -> Judgement {
    let mut judgement = Judgement::default();
    match observed.trial.kind {
        Kind::Duplicates => duplicates(observed, facts, &mut judgement),
        Kind::Changed => changed(observed, facts, &mut judgement),
        Kind::NearKey => near_key(observed, facts, &mut judgement),
        Kind::Callers => callers(observed, facts, &mut judgement),
        Kind::Failing => failing(observed, &mut judgement),
        Kind::Hot => hot(observed, facts, &mut judgement),
        Kind::Fresh => fresh(observed, &mut judgement),
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

fn duplicates(observed: &Observed, facts: &Facts, judgement: &mut Judgement) {
    let successes = observed.successes();
    executed_at_most(1, observed, judgement);
    same_answers(&successes, facts, judgement);
    success_is_executed(observed, !successes.is_empty(), judgement);
    // Elsewhere we disturb, or send so many that a service may well drop some.
    if observed.trial.program == Program::T1 && !successes.is_empty() {
        replays_break_off(observed, facts, judgement);
    }
}

/// Retries whose answers break off, more often than those of new keys.
fn replays_break_off(observed: &Observed, facts: &Facts, judgement: &mut Judgement) {
    let (mut replays, mut last) = (Rate::default(), None);
    for event in observed.events.iter().skip(1) {
        let broken = match &event.outcome {
            Outcome::Broken(how) => Some(how),
            _ => None,
        };
        replays.note(broken.is_some());
        last = broken.or(last);
    }
    if let (Some(how), true) = (last, replays.is_above(facts.fresh.broken)) {
        let summary = format!(
            "the answers to {replays} undisturbed retries broke off ({how}), and to {} requests with new keys",
            facts.fresh.broken
        );
        judgement.violated(Property::SameAnswer, summary);
    }
}

fn fresh(observed: &Observed, judgement: &mut Judgement) {
    executed_at_most(1, observed, judgement);
    success_is_executed(observed, !observed.successes().is_empty(), judgement);
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

fn same_answers(successes: &[&Event], facts: &Facts, judgement: &mut Judgement) {
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

/// What names the thing that was made: `id`, or else a member such as `charge_id`. Names of the request itself differ in
/// each answer.
fn id_of(answer: &Answer) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    let members = body.as_object()?;
    let is_of_thing = |name: &str| name.ends_with("_id") && !REQUEST_IDS.contains(&name);
    let other = || members.iter().find(|(name, _)| is_of_thing(name)).map(|(_, id)| id);
    let id = members.get("id").or_else(other)?;
    (!id.is_null()).then(|| id.to_string())
}

fn changed(observed: &Observed, facts: &Facts, judgement: &mut Judgement) {
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

fn near_key(observed: &Observed, facts: &Facts, judgement: &mut Judgement) {
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

fn callers(observed: &Observed, facts: &Facts, judgement: &mut Judgement) {
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
    // The shim fails once, so a second answer with its error is a kept one, which must stay. An error of another text may
    // be the target's own, at any request.
    let planned = observed.trial.misbehaviour.and_then(Misbehaviour::error);
    let is_planned = |(status, body): (u16, &str)| is_error(error, status, body);
    let was_kept = planned.is_some_and(is_planned) && is_same(error, again[0]);
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

fn is_error(answer: &Answer, status: u16, body: &str) -> bool {
    (answer.status, answer.body.as_slice()) == (status, body.as_bytes())
}

/// Whether the right request got this answer.
fn is_told_elsewhere(answer: &Answer, events: &[Event]) -> bool {
    let right = events.iter().filter(|event| event.shot.variant == Variant::Same);
    right.filter_map(Event::answer).any(|other| is_same(other, answer))
}

fn hot(observed: &Observed, facts: &Facts, judgement: &mut Judgement) {
    executed_at_most(1, observed, judgement);
    let successes = observed.successes();
    same_answers(&successes, facts, judgement);
    success_is_executed(observed, !successes.is_empty(), judgement);
    let Fresh { before, after, failed_with, .. } = &facts.fresh;
    if !after.could_be_above(*before) || after.is_doubtful(*before) {
        return;
    }
    judgement.tested(Property::HotKey);
    if let (Some(failed_with), true) = (failed_with, after.is_above(*before)) {
        let summary = format!(
            "after the crowd {after} requests with new keys failed, before it {before}: `{failed_with}`"
        );
        judgement.violated(Property::HotKey, summary);
    }
}

const ACCEPTED: u16 = 202;
/// Names of a request, not of what it made.
const REQUEST_IDS: [&str; 5] =
    ["request_id", "trace_id", "correlation_id", "span_id", "session_id"];

#[cfg(test)]
mod tests;
