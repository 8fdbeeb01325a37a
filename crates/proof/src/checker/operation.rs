//! The lines of one operation, and what is wrong with them.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::Faults;
use super::line::{Kind, Line};

/// What is broken, and how.
type Broken = Option<(&'static str, String)>;

/// One operation: what is told of one key of one caller, in order.
#[derive(Default)]
pub(super) struct Operation<'a> {
    lines: Vec<&'a Line>,
    requests: Vec<Request<'a>>,
    /// Of each process, the request that has no answer yet.
    open: HashMap<&'a str, usize>,
    /// An answer without a request, or a second request of a process that waits.
    stray: Option<&'a Line>,
}

/// A request, and what came of it.
struct Request<'a> {
    invoke: &'a Line,
    answer: Option<&'a Line>,
}

impl<'a> Operation<'a> {
    /// Lines come in the order of their times.
    pub(super) fn push(&mut self, line: &'a Line) {
        self.lines.push(line);
        match line.kind {
            Kind::Invoke => {
                let place = self.requests.len();
                self.requests.push(Request { invoke: line, answer: None });
                if self.open.insert(&line.process, place).is_some() {
                    self.stray.get_or_insert(line);
                }
            }
            kind if kind.is_answer() => match self.open.remove(line.process.as_str()) {
                Some(place) => self.requests[place].answer = Some(line),
                None => {
                    self.stray.get_or_insert(line);
                }
            },
            _ => {}
        }
    }

    /// Whether a fault hit something while it had a request of this operation.
    pub(super) fn was_hit(&self, faults: &Faults) -> bool {
        self.requests.iter().any(|request| {
            let (from, via) = (request.invoke.t, request.invoke.via.as_str());
            let to = request.answer.map_or(u64::MAX, |answer| answer.t);
            faults.between(from, to, Some(via)).is_some()
        })
    }

    /// The first promise that is broken.
    pub(super) fn judge(&self, faults: &Faults, quiet: Option<&Line>) -> Broken {
        self.malformed()
            .or_else(|| self.more_than_one_effect())
            .or_else(|| self.different_answers())
            .or_else(|| self.answer_without_effect())
            .or_else(|| self.answer_of_someone_else())
            .or_else(|| self.other_content())
            .or_else(|| self.attempts())
            .or_else(|| self.forgotten())
            .or_else(|| self.refused_and_done())
            .or_else(|| self.unknown_without_fault(faults))
            .or_else(|| quiet.and_then(|quiet| self.unsettled(quiet)))
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().copied().filter(move |line| line.kind == kind)
    }

    /// What the service saw.
    fn arrivals(&self) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().copied().filter(|line| line.kind.is_of_service())
    }

    fn malformed(&self) -> Broken {
        let stray = self.stray.map(|line| format!("a stray line of {}", line.process));
        let unended = || self.requests.iter().any(|request| request.answer.is_none());
        let unended = || unended().then(|| "a request without an end".to_owned());
        stray.or_else(unended).map(|what| ("malformed", what))
    }

    fn more_than_one_effect(&self) -> Broken {
        let effects = self.of(Kind::Effect).count();
        (effects > 1).then(|| ("I1", format!("{effects} effects")))
    }

    fn different_answers(&self) -> Broken {
        let mut answers = self.of(Kind::Ok).map(|ok| (ok.status, &ok.body));
        let first = answers.next()?;
        let other = answers.find(|answer| *answer != first)?;
        Some(("I2", format!("two answers, {first:?} and {other:?}")))
    }

    fn answer_without_effect(&self) -> Broken {
        let ok = self.of(Kind::Ok).next()?;
        let is_after = |effect: &Line| effect.t <= ok.t;
        let has_effect = self.of(Kind::Effect).any(is_after);
        (!has_effect).then(|| ("I3", "an answer, and no effect before it".to_owned()))
    }

    fn answer_of_someone_else(&self) -> Broken {
        let is_other = |ok: &&Line| {
            let names = ok.names.as_ref();
            names.is_some_and(|(caller, key)| *caller != ok.caller || *key != ok.key)
        };
        let ok = self.of(Kind::Ok).find(is_other)?;
        Some(("I4", format!("{} was told the answer of {:?}", ok.process, ok.names)))
    }

    fn other_content(&self) -> Broken {
        let done = self.lines.iter().filter(|line| matches!(line.kind, Kind::Ok | Kind::Effect));
        let contents: HashSet<_> = done.map(|line| line.fp.as_str()).collect();
        if contents.len() > 1 {
            return Some(("I5", format!("requests of {} contents were answered", contents.len())));
        }
        let refused = |line: &Line| line.why == "mismatch" && contents.contains(line.fp.as_str());
        let refused = self.of(Kind::Fail).find(|line| refused(line))?;
        Some(("I5", format!("{} was told that its content differs", refused.process)))
    }

    fn attempts(&self) -> Broken {
        let mut last = 0;
        for attempt in self.of(Kind::Invoke).filter_map(|invoke| invoke.attempt) {
            if attempt <= last {
                return Some(("I6", format!("attempt {attempt} of a client after {last}")));
            }
            last = attempt;
        }
        let mut seen = HashSet::new();
        if let Some(twice) =
            self.arrivals().find(|line| line.attempt.is_some_and(|n| !seen.insert(n)))
        {
            return Some(("I6", format!("two owners of attempt {:?}", twice.attempt)));
        }
        let made: HashSet<_> = self.arrivals().map(|line| line.body.as_str()).collect();
        let strange = self.of(Kind::Ok).find(|ok| !made.contains(ok.body.as_str()))?;
        Some(("I6", format!("no attempt has made the answer {}", strange.body)))
    }

    fn forgotten(&self) -> Broken {
        let first = self.of(Kind::Ok).next()?;
        let later = self.requests.iter().filter(|request| request.invoke.t > first.t);
        for request in later.filter(|request| request.invoke.fp == first.fp) {
            let answer = request.answer?;
            let is_right = match answer.kind {
                Kind::Ok => answer.replayed,
                _ => matches!(answer.why.as_str(), "unavailable" | "lost"),
            };
            if !is_right {
                let told: &str =
                    if answer.kind == Kind::Ok { "a fresh answer" } else { &answer.why };
                return Some((
                    "I7",
                    format!("{} was told {told} after the answer", answer.process),
                ));
            }
        }
        None
    }

    fn refused_and_done(&self) -> Broken {
        let effect = self.of(Kind::Effect).next()?;
        let mut answers = self.requests.iter().filter_map(|request| request.answer);
        let is_refused = answers.all(|answer| answer.kind == Kind::Fail);
        is_refused.then(|| {
            ("I8", format!("every request was refused, and there is an effect at {}", effect.t))
        })
    }

    fn unknown_without_fault(&self, faults: &Faults) -> Broken {
        let begin = self.requests.first()?.invoke.t;
        let unknown = self.of(Kind::Info).find(|info| info.why == "unknown")?;
        let is_excused = faults.between(begin, unknown.t, None).is_some();
        (!is_excused)
            .then(|| ("I9", format!("{} was told \"unknown\" without a fault", unknown.process)))
    }

    fn unsettled(&self, quiet: &Line) -> Broken {
        let deadline = quiet.t + quiet.settle;
        let late = self.requests.iter().find(|request| {
            let is_waiting = request.answer.is_some_and(|answer| answer.why == "in_progress");
            request.invoke.t > deadline && is_waiting
        });
        if let Some(late) = late {
            return Some((
                "I10",
                format!("{} found it in progress after the deadline", late.invoke.process),
            ));
        }
        let may_be_unknown = self.requests.first()?.invoke.class != "redrive";
        let is_end =
            |line: &Line| line.kind == Kind::Ok || (may_be_unknown && line.why == "unknown");
        let is_ended = self.lines.iter().any(|line| is_end(line));
        (!is_ended).then(|| ("I10", "it never ended".to_owned()))
    }

    /// Its lines and the faults meanwhile, with times in milliseconds since the first.
    pub(super) fn timeline(&self, faults: &Faults) -> String {
        let (Some(first), Some(last)) = (self.lines.first(), self.lines.last()) else {
            return String::new();
        };
        let lines = self.lines.iter().map(|line| (line.t, line.text.clone()));
        let mut all: Vec<_> = lines.chain(faults.all_between(first.t, last.t)).collect();
        all.sort();
        all.iter().fold(String::new(), |mut text, (t, line)| {
            let ms = t.saturating_sub(first.t) as f64 / 1e6;
            // Writing into a text does not fail.
            let _ = writeln!(text, "{ms:10.3} ms  {line}");
            text
        })
    }
}
