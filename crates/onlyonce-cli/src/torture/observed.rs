//! What happened: events of each trial, and counts of the whole run.

use std::time::Duration;

use super::plan::{Cut, End, Kind, Over, Shot, Trial};
use super::shim::Arrival;
use super::wire::{Answer, Outcome};

/// A request and what became of it. Times are since the start of the run.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) from: Duration,
    pub(crate) until: Duration,
    pub(crate) shot: Shot,
    pub(crate) outcome: Outcome,
}

impl Event {
    pub(crate) fn answer(&self) -> Option<&Answer> {
        self.outcome.answer()
    }

    /// Whether it was answered with 2xx.
    pub(crate) fn is_success(&self) -> bool {
        self.answer().is_some_and(Answer::is_success)
    }

    /// Whether it was answered, but not with 2xx.
    pub(crate) fn is_refusal(&self) -> bool {
        self.answer().is_some_and(|answer| !answer.is_success())
    }
}

/// A trial that was carried out.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) trial: Trial,
    pub(crate) events: Vec<Event>,
    /// What else was done, and when.
    pub(crate) notes: Vec<(Duration, String)>,
    /// Executions of its request.
    pub(crate) count: Option<u64>,
    /// Executions of the changed request.
    pub(crate) other_count: Option<u64>,
    /// Why there is no count.
    pub(crate) count_error: Option<String>,
    pub(crate) arrivals: Vec<Arrival>,
}

impl Observed {
    pub(crate) fn new(trial: Trial) -> Self {
        Self {
            trial,
            events: Vec::new(),
            notes: Vec::new(),
            count: None,
            other_count: None,
            count_error: None,
            arrivals: Vec::new(),
        }
    }

    /// The 2xx answers, in the order of their ends.
    pub(crate) fn successes(&self) -> Vec<&Event> {
        let mut found: Vec<_> = self.events.iter().filter(|event| event.is_success()).collect();
        found.sort_by_key(|event| event.until);
        found
    }
}

/// What a run did: a clean verdict over zeros is worth nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) trials: usize,
    pub(crate) sent: usize,
    pub(crate) successes: usize,
    /// 2xx answers that equal an earlier one of their key.
    pub(crate) replays: usize,
    /// 409 and 425.
    pub(crate) in_progress: usize,
    /// 4xx answers to changed requests.
    pub(crate) mismatches_refused: usize,
    /// All other answers of 4xx.
    pub(crate) other_4xx: usize,
    pub(crate) answers_5xx: usize,
    pub(crate) bursts: usize,
    pub(crate) cuts_in_request: usize,
    pub(crate) cuts_in_answer: usize,
    pub(crate) hang_ups: usize,
    pub(crate) stream_resets: usize,
    /// Of all cuts, those that ended the connection in order.
    pub(crate) closed_in_order: usize,
    pub(crate) half_closed: usize,
    pub(crate) upstream_faults: usize,
    pub(crate) hooks: usize,
    pub(crate) hooks_failed: usize,
    pub(crate) timeouts: usize,
    /// Connections that the other side ended before an answer.
    pub(crate) broken: usize,
    pub(crate) not_connected: usize,
    pub(crate) skipped_for_ceiling: usize,
    pub(crate) skipped_for_stop: usize,
    pub(crate) skipped_for_time: usize,
}

impl Counts {
    pub(crate) fn note(&mut self, observed: &Observed) {
        self.hooks_failed +=
            observed.notes.iter().filter(|(_, told)| told.contains(HOOK_FAILED)).count();
        for event in &observed.events {
            self.note_outcome(event, observed.trial.kind);
        }
        let successes = observed.successes();
        if let Some(first) = successes.first().and_then(|event| event.answer()) {
            let same = successes.iter().filter_map(|event| event.answer());
            self.replays += same.filter(|answer| answer.body == first.body).count() - 1;
        }
    }

    fn note_outcome(&mut self, event: &Event, kind: Kind) {
        self.half_closed += usize::from(matches!(event.shot.cut, Cut::HalfClosed(_)));
        match &event.outcome {
            Outcome::Answered(answer) => match answer.status {
                200..300 => self.successes += 1,
                400..500
                    if kind == Kind::Changed
                        && event.shot.variant != super::plan::Variant::Same =>
                {
                    self.mismatches_refused += 1;
                }
                409 | 425 => self.in_progress += 1,
                400..500 => self.other_4xx += 1,
                500..600 => self.answers_5xx += 1,
                _ => {}
            },
            Outcome::Cut(_) => self.note_cut(&event.shot),
            Outcome::Broken(_) => self.broken += 1,
            Outcome::TimedOut => self.timeouts += 1,
            Outcome::NotConnected(_) => self.not_connected += 1,
        }
    }

    fn note_cut(&mut self, shot: &Shot) {
        let is_in_order = shot.cut.end() == Some(End::Close);
        self.closed_in_order += usize::from(is_in_order);
        match (shot.over, shot.cut) {
            (Over::Http2, _) if !is_in_order => self.stream_resets += 1,
            (_, Cut::Request(..)) => self.cuts_in_request += 1,
            (_, Cut::Response(..)) => self.cuts_in_answer += 1,
            _ => self.hang_ups += 1,
        }
    }

    /// Names and figures, in the order of a report.
    pub(crate) fn named(&self) -> [(&'static str, usize); 24] {
        [
            ("trials", self.trials),
            ("requests sent", self.sent),
            ("2xx answers", self.successes),
            ("replays", self.replays),
            ("409 and 425 in progress", self.in_progress),
            ("changed requests refused", self.mismatches_refused),
            ("other 4xx answers", self.other_4xx),
            ("5xx answers", self.answers_5xx),
            ("bursts", self.bursts),
            ("cuts in a request", self.cuts_in_request),
            ("cuts in an answer", self.cuts_in_answer),
            ("hang-ups while waiting", self.hang_ups),
            ("HTTP/2 streams reset", self.stream_resets),
            ("of all cuts, closed in order", self.closed_in_order),
            ("connections half-closed", self.half_closed),
            ("faults behind the target", self.upstream_faults),
            ("commands run", self.hooks),
            ("commands that failed", self.hooks_failed),
            ("timeouts", self.timeouts),
            ("connections ended by the target", self.broken),
            ("connections refused", self.not_connected),
            ("trials skipped for --requests-max", self.skipped_for_ceiling),
            ("trials skipped after an interrupt", self.skipped_for_stop),
            ("trials skipped for --time-limit", self.skipped_for_time),
        ]
    }

    /// Whatever was done to disturb.
    pub(crate) fn faults(&self) -> usize {
        self.cuts_in_request
            + self.cuts_in_answer
            + self.hang_ups
            + self.stream_resets
            + self.half_closed
            + self.upstream_faults
            + self.bursts
            + self.hooks
    }
}

/// In the note of a command of the user that failed.
pub(crate) const HOOK_FAILED: &str = "FAILED";
