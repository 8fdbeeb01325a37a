//! What a person sees while it runs: one line that changes on a terminal, one line a program elsewhere.

use std::io::{IsTerminal, Write};

use super::fresh::Fresh;
use super::judge::{Facts, judge};
use super::observed::{Counts, Observed};
use super::plan::Program;

/// Tells on stderr.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    is_quiet: bool,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_quiet, is_terminal: std::io::stderr().is_terminal() }
    }

    /// A line that stays.
    pub(crate) fn say(self, text: &str) {
        if !self.is_quiet {
            self.wipe();
            eprintln!("{text}");
        }
    }

    /// A line that is overwritten by the next.
    pub(crate) fn at(self, program: Program, number: usize, count: usize, counts: &Counts) {
        if self.is_quiet || !self.is_terminal {
            return;
        }
        let filled = (number * BAR) / count.max(1);
        let bar: String = (0..BAR).map(|at| if at < filled { '█' } else { '░' }).collect();
        let Counts { sent, replays, in_progress, .. } = counts;
        let told = format!(
            "{sent} sent, {replays} replays, {in_progress} × 409, {} faults",
            counts.faults()
        );
        eprint!("\r\x1b[2K{program:<4} {bar} {:<38} {told}", program.title());
        // Nothing is lost with a line that does not come.
        let _ = std::io::stderr().flush();
    }

    /// The program is done: it began with the trial `first` of all that were carried out.
    pub(crate) fn done(self, program: Program, observed: &[Observed], first: usize) {
        let fresh = Fresh::seen(observed);
        let facts = Facts { has_unique_answers: false, is_counted: true, fresh };
        let trials = &observed[first..];
        let violated =
            trials.iter().filter(|trial| !judge(trial, &facts).violations.is_empty()).count();
        let told = match violated {
            0 => format!("{} trials", trials.len()),
            _ => format!("{} trials, {violated} VIOLATED", trials.len()),
        };
        let mark = if violated == 0 { "·" } else { "✗" };
        self.say(&format!("{mark} {:<4} {:<38} {told}", program.to_string(), program.title()));
    }

    fn wipe(self) {
        if self.is_terminal {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Characters of the bar.
const BAR: usize = 20;
