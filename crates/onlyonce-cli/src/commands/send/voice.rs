//! What is said on stderr: at once, or with `--quiet` only if the command fails.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onlyonce::client::Event;

use super::report;

/// The lines of one command. Clones are the same voice.
#[derive(Clone, Debug, Default)]
pub(super) struct Voice(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_quiet: bool,
    /// Lines of a quiet command, until it is known whether it fails. There are a few for each attempt.
    held: Vec<String>,
    /// Whether each line names the key that it is about.
    names_keys: bool,
    /// The key of the operation that is being sent.
    key: String,
}

impl Voice {
    pub(super) fn new(is_quiet: bool) -> Self {
        Self(Arc::new(Mutex::new(State { is_quiet, ..State::default() })))
    }

    /// From now on each line about an operation names its key.
    pub(super) fn name_keys(&self) {
        self.state().names_keys = true;
    }

    /// One line.
    pub(super) fn say(&self, line: &str) {
        self.state().say(format!("onlyonce: {line}"));
    }

    /// One line about the operation with this key.
    pub(super) fn say_of(&self, key: &str, line: &str) {
        let mut state = self.state();
        let line = match state.names_keys {
            true => format!("onlyonce: {key}: {line}"),
            false => format!("onlyonce: {line}"),
        };
        state.say(line);
    }

    /// An attempt or a wait, as it happens.
    pub(super) fn tell(&self, event: &Event<'_>) {
        let line = match event {
            Event::Attempt { key, .. } => return key.as_str().clone_into(&mut self.state().key),
            Event::Answered { number, answer } => {
                let replayed = if answer.is_replay() { ", replayed" } else { "" };
                format!("attempt {number}: {}{replayed}", answer.status)
            }
            Event::Failed { number, failure } => {
                let causes = report::causes(failure.source.as_ref());
                format!("attempt {number}: {failure}: {causes}")
            }
            Event::Waiting { wait } => format!("retrying in {:.1} s", wait.as_secs_f64()),
            Event::Redirected { to } => format!("redirected to {to}"),
            _ => return,
        };
        let key = self.state().key.clone();
        self.say_of(&key, &line);
    }

    /// One line that even a quiet command says, whatever its exit code.
    pub(super) fn say_in_any_case(&self, line: &str) {
        eprintln!("onlyonce: {line}");
    }

    /// A part of the command ends, or the whole: a quiet one that failed says what it did, and is quiet no more.
    pub(super) fn end(&self, code: ExitCode) {
        if code != ExitCode::SUCCESS {
            let mut state = self.state();
            state.is_quiet = false;
            state.held.drain(..).for_each(|line| eprintln!("{line}"));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn say(&mut self, line: String) {
        match self.is_quiet {
            true => self.held.push(line),
            false => eprintln!("{line}"),
        }
    }
}
