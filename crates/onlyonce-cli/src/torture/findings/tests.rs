use std::time::Duration;

use super::*;
use crate::torture::observed::Event;
use crate::torture::plan::{Shot, Step, Trial};
use crate::torture::wire::{Answer, Outcome};

/// A trial of two requests with the same answer, and so many executions.
fn twice(program: Program, status: u16, count: u64) -> Observed {
    let shot = Shot::plain("k");
    let mut observed = Observed::new(Trial {
        program,
        label: "a trial".to_owned(),
        kind: Kind::Duplicates,
        key: "k".to_owned(),
        marker: "m".to_owned(),
        other_marker: "x".to_owned(),
        misbehaviour: None,
        steps: vec![Step::One(shot.clone()), Step::One(shot.clone())],
    });
    let answer = Answer { status, headers: Vec::new(), body: Vec::new(), length: 20 };
    let outcome = Outcome::Answered(answer);
    let event = Event { from: Duration::ZERO, until: Duration::ZERO, shot, outcome };
    observed.events = vec![event.clone(), event];
    observed.count = Some(count);
    observed
}

fn untested(observed: &[Observed]) -> Option<String> {
    let facts = Facts { is_counted: true, ..Facts::default() };
    let judged: Vec<_> = observed.iter().map(|seen| (seen, judge(seen, &facts))).collect();
    hardly_executed(&judged)
}

#[test]
fn who_refuses_every_burst_has_not_withstood_one() {
    let mut seen = vec![twice(Program::T1, 201, 1), twice(Program::T1, 201, 1)];
    assert_eq!(untested(&seen), None);
    seen.push(twice(Program::T2, 429, 0));
    assert_eq!(untested(&seen), Some("no trial of T2 executed anything".to_owned()));
    seen.push(twice(Program::T2, 201, 1));
    assert_eq!(untested(&seen), None);
}

#[test]
fn who_refuses_most_requests_has_withstood_little() {
    let refused = || twice(Program::T1, 503, 0);
    let seen = [twice(Program::T1, 201, 1), refused(), refused()];
    assert_eq!(untested(&seen), Some("only 1 of 3 trials executed anything".to_owned()));
}

#[test]
fn an_odd_key_may_be_refused() {
    assert_eq!(untested(&[twice(Program::T7, 400, 0), twice(Program::T1, 201, 1)]), None);
}
