//! The checker itself: histories made by hand, of which it must pass some and name what is wrong with the others.

use proof::checker::{Verdict, check};
use serde_json::{Value, json};

const NO_NEEDS: &[(&str, usize)] = &[];

/// A history of caller `c`, key `k`, content `f`, that is changed line by line.
#[derive(Clone, Default)]
struct History(Vec<Value>);

impl History {
    fn line(mut self, line: Value) -> Self {
        self.0.push(line);
        self
    }

    /// The last line, with `name` set to `value`.
    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.last_mut().expect("a line")[name] = value.into();
        self
    }

    fn event(self, t: u64, process: &str, kind: &str) -> Self {
        self.line(json!({"t": t, "process": process, "kind": kind, "caller": "c", "key": "k",
            "class": "opaque", "fp": "f", "via": "a"}))
    }

    fn invoke(self, t: u64, process: &str, attempt: u64) -> Self {
        self.event(t, process, "invoke").with("attempt", attempt)
    }

    fn ok(self, t: u64, process: &str) -> Self {
        let ok = self.event(t, process, "ok").with("status", 201).with("body", "b");
        ok.with("names", json!(["c", "k"])).with("replayed", false)
    }

    fn replay(self, t: u64, process: &str) -> Self {
        self.ok(t, process).with("replayed", true)
    }

    fn fail(self, t: u64, process: &str, why: &str) -> Self {
        self.event(t, process, "fail").with("why", why)
    }

    fn info(self, t: u64, process: &str, why: &str) -> Self {
        self.event(t, process, "info").with("why", why)
    }

    fn effect(self, t: u64) -> Self {
        self.event(t, "service", "effect").with("attempt", 1).with("body", "b")
    }

    fn arrival(self, t: u64, attempt: u64) -> Self {
        self.event(t, "service", "arrival").with("attempt", attempt).with("body", "b")
    }

    fn fault(self, from: u64, to: u64) -> Self {
        self.line(json!({"t": to, "from": from, "kind": "fault", "what": "kill", "on": "a"}))
    }

    fn quiet(self, t: u64, settle: u64) -> Self {
        self.line(json!({"t": t, "kind": "quiet", "settle": settle}))
    }

    fn verdict(&self, needs: &[(&str, usize)]) -> Verdict {
        let lines: Vec<_> = self.0.iter().map(Value::to_string).collect();
        check(lines.iter().map(String::as_str), needs)
    }

    fn breaks(&self, property: &str) {
        let verdict = self.verdict(NO_NEEDS);
        let found = verdict.violation.as_ref().map(|violation| violation.property);
        assert_eq!(found, Some(property), "{verdict}");
    }

    fn is_good(&self) {
        let verdict = self.verdict(NO_NEEDS);
        assert_eq!(verdict.violation, None, "{verdict}");
    }
}

fn begin() -> History {
    History::default()
}

/// Sent, done, answered.
fn simple() -> History {
    begin().invoke(10, "p", 1).effect(15).ok(20, "p")
}

/// Sent, done, and the answer was lost in a kill.
fn killed() -> History {
    begin().invoke(10, "p", 1).effect(15).fault(16, 18).info(20, "p", "lost")
}

#[test]
fn good_histories_pass() {
    let good = [
        simple(),
        simple().invoke(30, "q", 2).replay(40, "q"),
        simple().invoke(30, "q", 2).fail(40, "q", "unavailable"),
        simple().invoke(30, "q", 2).with("fp", "g").fail(40, "q", "mismatch").with("fp", "g"),
        begin()
            .invoke(10, "p", 1)
            .fail(20, "p", "not_executed")
            .invoke(30, "p", 2)
            .effect(35)
            .ok(40, "p"),
        begin()
            .invoke(10, "p", 1)
            .invoke(11, "q", 2)
            .fail(12, "q", "in_progress")
            .effect(15)
            .ok(20, "p"),
        // Asked before the answer was given, and answered after it.
        begin().invoke(10, "p", 1).invoke(11, "q", 2).effect(15).ok(20, "p").fail(
            21,
            "q",
            "in_progress",
        ),
        killed().invoke(30, "p", 2).info(40, "p", "unknown"),
        killed().invoke(30, "p", 2).info(40, "p", "unknown").invoke(50, "p", 3).replay(60, "p"),
        begin()
            .invoke(10, "p", 1)
            .fault(16, 18)
            .info(20, "p", "lost")
            .invoke(30, "p", 2)
            .info(40, "p", "unknown"),
        killed().arrival(25, 2).invoke(30, "q", 2).replay(40, "q"),
        killed().invoke(30, "p", 2).replay(40, "p").quiet(50, 10),
        begin()
            .invoke(10, "p", 1)
            .effect(11)
            .quiet(12, 10)
            .fail(15, "p", "in_progress")
            .invoke(16, "p", 2)
            .replay(20, "p"),
        // Another caller has the same key, and something else comes of it.
        simple()
            .invoke(30, "q", 1)
            .with("caller", "d")
            .effect(35)
            .with("caller", "d")
            .with("body", "x")
            .ok(40, "q")
            .with("caller", "d")
            .with("body", "x")
            .with("names", json!(["d", "k"])),
    ];
    assert!(good.len() >= 10);
    good.iter().for_each(History::is_good);
}

#[test]
fn two_effects_and_two_answers_are_seen() {
    simple().effect(25).with("attempt", 2).breaks("I1");
    killed().effect(25).with("attempt", 2).invoke(30, "p", 2).info(40, "p", "lost").breaks("I1");
    simple().invoke(30, "q", 2).replay(40, "q").with("body", "other").breaks("I2");
    simple().invoke(30, "q", 2).replay(40, "q").with("status", 200).breaks("I2");
}

#[test]
fn answers_without_an_effect_or_of_someone_else_are_seen() {
    begin().invoke(10, "p", 1).ok(20, "p").breaks("I3");
    begin().invoke(10, "p", 1).ok(20, "p").effect(25).breaks("I3");
    simple().with("names", json!(["d", "k"])).breaks("I4");
    simple().with("names", json!(["c", "other"])).breaks("I4");
}

#[test]
fn answers_to_another_content_are_seen() {
    let other = simple().invoke(30, "q", 2).with("fp", "g");
    other.replay(40, "q").with("fp", "g").breaks("I5");
    killed().with("fp", "g").invoke(30, "q", 2).ok(40, "q").with("fp", "g").breaks("I5");
    simple().invoke(30, "q", 2).fail(40, "q", "mismatch").breaks("I5");
}

#[test]
fn attempts_that_repeat_or_made_nothing_are_seen() {
    simple().invoke(30, "q", 1).replay(40, "q").breaks("I6");
    killed().arrival(25, 1).invoke(30, "q", 2).replay(40, "q").breaks("I6");
    begin().invoke(10, "p", 1).effect(15).with("body", "made").ok(20, "p").breaks("I6");
}

#[test]
fn what_was_answered_and_is_forgotten_is_seen() {
    simple().invoke(30, "q", 2).fail(40, "q", "in_progress").breaks("I7");
    simple().invoke(30, "q", 2).ok(40, "q").breaks("I7");
    simple().fault(22, 23).invoke(30, "q", 2).info(40, "q", "unknown").breaks("I7");
    simple().invoke(30, "q", 2).fail(40, "q", "not_executed").breaks("I7");
}

#[test]
fn an_effect_of_what_was_refused_is_seen() {
    begin().invoke(10, "p", 1).effect(15).fail(20, "p", "unavailable").breaks("I8");
    begin().invoke(10, "p", 1).effect(15).fail(20, "p", "not_executed").breaks("I8");
}

#[test]
fn an_unknown_outcome_without_a_fault_is_seen() {
    begin().invoke(10, "p", 1).effect(15).info(20, "p", "unknown").breaks("I9");
    let late = begin().invoke(10, "p", 1).effect(15).info(20, "p", "unknown").fault(30, 40);
    late.breaks("I9");
}

#[test]
fn what_does_not_settle_in_time_is_seen() {
    killed().quiet(25, 10).invoke(40, "p", 2).fail(45, "p", "in_progress").breaks("I10");
    killed().quiet(25, 10).breaks("I10");
    let redrive = begin().invoke(10, "p", 1).with("class", "redrive").effect(15).fault(16, 18);
    redrive.info(20, "p", "unknown").quiet(25, 10).breaks("I10");
}

#[test]
fn too_little_of_something_is_seen() {
    let verdict = killed().verdict(&[("fault kill", 2)]);
    assert_eq!(verdict.violation.expect("too few").property, "I12");
    assert_eq!(simple().verdict(&[("ok", 1), ("operations", 1)]).violation, None);
    assert_eq!(
        simple().verdict(&[("faulted operations", 1)]).violation.expect("none").property,
        "I12"
    );
}

#[test]
fn a_history_that_contradicts_itself_is_seen() {
    simple().ok(30, "q").breaks("malformed");
    simple().invoke(30, "q", 2).breaks("malformed");
    begin().invoke(10, "p", 1).invoke(20, "p", 2).effect(25).ok(30, "p").breaks("malformed");
    assert_eq!(check(["nonsense"], NO_NEEDS).violation.expect("no event").property, "malformed");
}

#[test]
fn only_operations_whose_request_a_fault_met_count_as_faulted() {
    assert_eq!(killed().verdict(NO_NEEDS).faulted, 1);
    assert_eq!(simple().fault(22, 23).verdict(NO_NEEDS).faulted, 0, "it came after the answer");
    let elsewhere = killed().0.into_iter().map(|mut line| {
        if line["kind"] == "fault" {
            line["on"] = "b".into();
        }
        line
    });
    assert_eq!(History(elsewhere.collect()).verdict(NO_NEEDS).faulted, 0, "it hit another place");
}

#[test]
fn a_violation_comes_with_the_lines_of_its_operation_and_the_faults_meanwhile() {
    let other = killed().effect(25).with("attempt", 2).invoke(5, "x", 1).with("key", "other");
    let verdict = other.fail(6, "x", "unavailable").with("key", "other").verdict(NO_NEEDS);
    let timeline = verdict.violation.expect("two effects").timeline;
    assert!(timeline.contains("FAULT kill of a") && timeline.lines().count() == 5, "{timeline}");
    assert!(!timeline.contains("other"), "{timeline}");
}
