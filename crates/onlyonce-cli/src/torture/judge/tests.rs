use std::time::Duration;

use super::*;
use crate::torture::plan::{Shot, Step, Trial};

const COUNTED: Facts = Facts { has_unique_answers: true, is_counted: true, fresh: NEVER_FAILS };
const UNCOUNTED: Facts = Facts { is_counted: false, ..COUNTED };
const NEVER_FAILS: Fresh =
    Fresh { broken: rate(0, 17), before: rate(0, 17), after: rate(0, 12), failed_with: None };

const fn rate(failed: u32, of: u32) -> Rate {
    Rate { failed, of }
}

fn answer(status: u16, body: &str) -> Outcome {
    let headers = Vec::new();
    Outcome::Answered(Answer { status, headers, body: body.as_bytes().to_vec(), length: 100 })
}

/// A trial in which these shots had these outcomes, one after the other.
fn observed(kind: Kind, count: Option<u64>, outcomes: Vec<(Shot, Outcome)>) -> Observed {
    let shots = outcomes.iter().map(|(shot, _)| Step::One(shot.clone()));
    let mut observed = Observed::new(Trial {
        program: Program::T1,
        label: "a trial".to_owned(),
        kind,
        key: "k".to_owned(),
        marker: "m".to_owned(),
        other_marker: "x".to_owned(),
        misbehaviour: None,
        steps: shots.collect(),
    });
    observed.count = count;
    let events = outcomes.into_iter().zip(0..).map(|((shot, outcome), at)| {
        let (from, until) = (Duration::from_secs(at), Duration::from_secs(at + 1));
        Event { from, until, shot, outcome }
    });
    observed.events = events.collect();
    observed
}

fn plain(outcomes: Vec<Outcome>) -> Vec<(Shot, Outcome)> {
    outcomes.into_iter().map(|outcome| (Shot::plain("k"), outcome)).collect()
}

fn violated(observed: &Observed, facts: Facts) -> Vec<Property> {
    judge(observed, &facts).violations.iter().map(|violation| violation.property).collect()
}

fn duplicates(count: Option<u64>, outcomes: Vec<Outcome>) -> Observed {
    observed(Kind::Duplicates, count, plain(outcomes))
}

#[test]
fn two_executions_are_a_violation_even_if_every_answer_is_the_same() {
    let seen = duplicates(Some(2), vec![answer(201, "a"), answer(201, "a")]);
    assert_eq!(violated(&seen, COUNTED), [Property::AtMostOnce]);
}

#[test]
fn a_conflict_for_ever_after_a_cut_is_no_violation() {
    let cut = Outcome::Cut("reset".to_owned());
    let seen = duplicates(Some(1), vec![cut, answer(409, "unknown"), answer(409, "unknown")]);
    let judgement = judge(&seen, &COUNTED);
    assert_eq!(judgement.violations, []);
    assert_eq!(judgement.tested, [Property::AtMostOnce]);
}

#[test]
fn a_request_that_was_never_executed_tests_nothing() {
    let seen = duplicates(Some(0), vec![answer(400, "no"), answer(400, "no")]);
    assert_eq!(judge(&seen, &COUNTED), Judgement::default());
}

#[test]
fn answers_that_differ_in_body_or_status_are_a_violation() {
    for other in [answer(201, "b"), answer(200, "a")] {
        let seen = duplicates(Some(1), vec![answer(201, "a"), other]);
        assert_eq!(violated(&seen, COUNTED), [Property::SameAnswer]);
    }
}

#[test]
fn accepted_means_in_progress_beside_a_final_answer() {
    let seen = duplicates(Some(1), vec![answer(202, "busy"), answer(201, "a"), answer(201, "a")]);
    assert_eq!(violated(&seen, COUNTED), []);
    let seen = duplicates(Some(1), vec![answer(202, "a"), answer(202, "b")]);
    assert_eq!(violated(&seen, COUNTED), [Property::SameAnswer]);
}

#[test]
fn two_ids_prove_two_executions_where_nobody_counts() {
    let seen = duplicates(None, vec![answer(201, r#"{"id":1}"#), answer(201, r#"{"id":2}"#)]);
    assert_eq!(violated(&seen, UNCOUNTED), [Property::SameAnswer, Property::AtMostOnce]);
    let seen = duplicates(None, vec![answer(201, r#"{"at":1}"#), answer(201, r#"{"at":2}"#)]);
    assert_eq!(violated(&seen, UNCOUNTED), [Property::SameAnswer]);
}

#[test]
fn success_without_an_execution_is_a_violation() {
    let seen = duplicates(Some(0), vec![answer(201, "a")]);
    assert_eq!(violated(&seen, COUNTED), [Property::SuccessExecuted]);
}

fn changed(count: u64, other: u64, outcome: Outcome) -> Observed {
    let other_shot = Shot::plain("k").changed(Variant::OtherMarker);
    let outcomes = vec![(Shot::plain("k"), answer(201, "a")), (other_shot, outcome)];
    let mut seen = observed(Kind::Changed, Some(count), outcomes);
    seen.other_count = Some(other);
    seen
}

#[test]
fn a_changed_request_may_only_be_refused() {
    assert_eq!(violated(&changed(1, 0, answer(422, "")), COUNTED), []);
    assert_eq!(violated(&changed(1, 0, answer(409, "")), COUNTED), []);
    assert_eq!(violated(&changed(1, 0, answer(201, "a")), COUNTED), [Property::Mismatch]);
    assert_eq!(violated(&changed(1, 1, answer(201, "b")), COUNTED), [Property::Mismatch]);
    assert_eq!(violated(&changed(2, 0, answer(500, "")), COUNTED), [Property::Mismatch]);
}

fn callers(count: Option<u64>, second: Outcome) -> Observed {
    let other = Shot::plain("k").of(Caller::B);
    let outcomes = vec![(Shot::plain("k"), answer(201, "a")), (other, second)];
    observed(Kind::Callers, count, outcomes)
}

#[test]
fn two_callers_have_two_operations() {
    assert_eq!(violated(&callers(Some(2), answer(201, "b")), COUNTED), []);
    assert_eq!(violated(&callers(Some(1), answer(422, "")), COUNTED), []);
    assert_eq!(violated(&callers(Some(1), answer(201, "a")), COUNTED), [Property::Isolation]);
    assert_eq!(violated(&callers(Some(2), answer(201, "a")), COUNTED), [Property::Isolation]);
    assert_eq!(violated(&callers(None, answer(201, "a")), UNCOUNTED), [Property::Isolation]);
    assert_eq!(violated(&callers(Some(3), answer(201, "b")), COUNTED), [Property::AtMostOnce]);
}

#[test]
fn equal_answers_of_two_callers_prove_nothing_where_all_answers_are_equal() {
    let facts = Facts { has_unique_answers: false, ..COUNTED };
    assert_eq!(violated(&callers(Some(2), answer(201, "a")), facts), []);
}

#[test]
fn an_error_that_is_not_kept_is_no_violation_and_one_that_turns_by_itself_is() {
    let failing = |count, later| {
        observed(Kind::Failing, Some(count), plain(vec![answer(402, "declined"), later]))
    };
    assert_eq!(violated(&failing(1, answer(201, "a")), COUNTED), []);
    assert_eq!(violated(&failing(0, answer(402, "declined")), COUNTED), []);
    assert_eq!(violated(&failing(0, answer(200, "declined")), COUNTED), [Property::ErrorsStay]);
    assert_eq!(violated(&failing(1, answer(200, "declined")), COUNTED), [Property::ErrorsStay]);
    assert_eq!(violated(&failing(2, answer(201, "a")), COUNTED), [Property::AtMostOnce]);
}

fn fresh(label: &str, outcome: Outcome) -> Observed {
    let mut seen = observed(Kind::Fresh, Some(1), plain(vec![outcome]));
    seen.trial.label = label.to_owned();
    seen
}

/// What the crowd is accused of, if so many of 17 requests failed before it, and so many of 12 after it.
fn accused(before: usize, after: usize) -> Judgement {
    let failed_or_not = |failed: usize, of: usize| {
        (0..of).map(move |at| if at < failed { answer(503, "busy") } else { answer(201, "a") })
    };
    let crowd = observed(Kind::Hot, Some(1), plain(vec![answer(201, "a"), answer(409, "")]));
    let mut all: Vec<_> = failed_or_not(before, 17).map(|seen| fresh("before", seen)).collect();
    all.push(crowd.clone());
    all.extend(failed_or_not(after, 12).map(|seen| fresh("after", seen)));
    judge(&crowd, &Facts { fresh: Fresh::seen(&all), ..COUNTED })
}

#[test]
fn a_crowd_is_accused_of_no_more_than_what_is_more_frequent_after_it() {
    for (before, after) in [(0, 0), (0, 1), (3, 2), (3, 3), (2, 4), (17, 12)] {
        assert_eq!(accused(before, after).violations, [], "{before} before, {after} after");
    }
    for (before, after) in [(0, 12), (3, 12), (0, 8)] {
        let violations = accused(before, after).violations;
        assert_eq!(violations.len(), 1, "{before} before, {after} after");
        assert_eq!(violations[0].property, Property::HotKey);
    }
}

#[test]
fn what_chance_may_have_done_to_a_crowd_is_no_verdict_on_it() {
    let is_tested = |before, after| accused(before, after).tested.contains(&Property::HotKey);
    assert!(is_tested(0, 0) && is_tested(3, 2) && is_tested(0, 12));
    // Between one of twenty and one of a thousand runs; and where everything fails anyway.
    assert!(!is_tested(0, 5) && !is_tested(17, 12));
}

#[test]
fn a_limit_of_requests_is_no_harm_of_a_crowd() {
    let crowd = observed(Kind::Hot, Some(1), plain(vec![answer(201, "a"), answer(201, "a")]));
    let mut all: Vec<_> = (0..17).map(|_| fresh("before", answer(201, "a"))).collect();
    all.push(crowd.clone());
    all.extend((0..12).map(|_| fresh("after", answer(429, "slow down"))));
    let judgement = judge(&crowd, &Facts { fresh: Fresh::seen(&all), ..COUNTED });
    assert_eq!(judgement.violations, []);
    assert!(!judgement.tested.contains(&Property::HotKey));
}

/// A first answer, then replays of which so many break off.
fn replays(broken: usize, of: usize) -> Observed {
    let replay = |at: usize| match at < broken {
        true => Outcome::Broken("it ended after 40 bytes".to_owned()),
        false => answer(201, "a"),
    };
    let outcomes = [answer(201, "a")].into_iter().chain((0..of).map(replay));
    duplicates(Some(1), outcomes.collect())
}

#[test]
fn replays_that_break_off_are_a_violation_if_first_answers_do_not() {
    let often = Facts { fresh: Fresh { broken: rate(3, 17), ..NEVER_FAILS }, ..COUNTED };
    assert_eq!(violated(&replays(16, 16), COUNTED), [Property::SameAnswer]);
    assert_eq!(violated(&replays(16, 16), often.clone()), [Property::SameAnswer]);
    assert_eq!(violated(&replays(1, 4), COUNTED), []);
    assert_eq!(violated(&replays(3, 16), often), []);
}

#[test]
fn an_error_of_the_target_itself_is_not_one_that_was_kept() {
    let failing = |error: &str| {
        let outcomes = vec![answer(402, error), answer(402, error), answer(201, "a")];
        let mut seen = observed(Kind::Failing, Some(1), plain(outcomes));
        seen.trial.misbehaviour = Some(Misbehaviour::Declines);
        seen
    };
    let (_, declined) = Misbehaviour::Declines.error().unwrap();
    assert_eq!(violated(&failing(declined), COUNTED), [Property::ErrorsStay]);
    assert_eq!(violated(&failing("no money on the target's own account"), COUNTED), []);
}

#[test]
fn the_name_of_a_request_names_no_execution() {
    let body = |request, id| format!(r#"{{"correlation_id":{request},"charge_id":{id}}}"#);
    let seen = |id| duplicates(None, vec![answer(201, &body(1, 7)), answer(201, &body(2, id))]);
    assert_eq!(violated(&seen(7), UNCOUNTED), [Property::SameAnswer]);
    assert_eq!(violated(&seen(8), UNCOUNTED), [Property::SameAnswer, Property::AtMostOnce]);
}
