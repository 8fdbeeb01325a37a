//! How an outcome is told: the body and a sentence, or JSON; and which exit code it is.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use http::header::LOCATION;
use onlyonce::client::journal::JournalError;
use onlyonce::client::{Answer, Resumed, SendError, SendOutcome, Stop};
use onlyonce::code::Retry;
use onlyonce::key::Key;
use serde_json::{Value, json};

use super::voice::Voice;

/// How outcomes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// The body of the answer, or a table
    Text,
    /// A summary, one object per line
    Json,
}

/// What is told of one operation.
pub(super) struct Report {
    key: String,
    outcome: &'static str,
    why: Option<String>,
    advice: &'static str,
    status: Option<u16>,
    answer: Option<Answer>,
    code: u8,
}

impl Report {
    pub(super) fn of(key: &Key, end: &Result<SendOutcome, SendError>) -> Self {
        match end {
            Ok(outcome) => Self::of_outcome(key, outcome),
            Err(error) => Self::of_error(key, error),
        }
    }

    fn of_outcome(key: &Key, outcome: &SendOutcome) -> Self {
        let (why, code) = match outcome {
            SendOutcome::Fresh(_) | SendOutcome::Replayed(_) | SendOutcome::Done { .. } => {
                (None, HAPPENED)
            }
            SendOutcome::Rejected { elsewhere: Some(to), .. } => {
                (Some(format!("redirect to {to}")), REFUSED)
            }
            // As with no answer at all: the key is to be kept.
            SendOutcome::Rejected { retry: Retry::SameKey, .. } => (None, NOT_THROUGH),
            SendOutcome::Rejected { .. } => (None, REFUSED),
            SendOutcome::Unknown { doubt, stop, last, .. } => {
                let to = last.as_ref().filter(|_| *stop == Stop::NotFollowed).and_then(location);
                let to = to.map(|to| format!(": {to}")).unwrap_or_default();
                (Some(format!("{doubt}; {stop}{to}")), UNKNOWN)
            }
        };
        let status = match outcome {
            SendOutcome::Done { original_status, .. } => Some(original_status.as_u16()),
            _ => outcome.answer().map(|answer| answer.status.as_u16()),
        };
        Self {
            key: key.as_str().to_owned(),
            outcome: outcome.name(),
            why,
            advice: outcome.advice(),
            status,
            answer: outcome.answer().cloned(),
            code,
        }
    }

    fn of_error(key: &Key, error: &SendError) -> Self {
        let (outcome, code, last, why) = match error {
            // What failed was told attempt by attempt.
            SendError::NotThrough { last, stop, .. } => {
                ("not_through", NOT_THROUGH, last.as_deref().cloned(), stop.to_string())
            }
            SendError::Request(why) => ("not_sent", USAGE, None, why.clone()),
            SendError::Journal(JournalError::Reused { is_in_doubt }) => {
                ("not_sent", if *is_in_doubt { UNKNOWN } else { USAGE }, None, causes(error))
            }
            _ => ("not_sent", NOT_THROUGH, None, causes(error)),
        };
        Self {
            key: key.as_str().to_owned(),
            outcome,
            why: Some(why),
            advice: error.advice(),
            status: last.as_ref().map(|answer| answer.status.as_u16()),
            answer: last,
            code,
        }
    }

    pub(super) fn with_advice(self, advice: &'static str) -> Self {
        Self { advice, ..self }
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }

    /// Data on stdout, everything else on stderr. An error of stdout does not change the exit code, which says what
    /// became of the request.
    pub(super) fn print(&self, format: Format, voice: &Voice) -> io::Result<()> {
        self.tell(voice);
        let mut stdout = io::stdout();
        match (format, &self.answer) {
            (Format::Json, _) => writeln!(stdout, "{}", self.json())?,
            (Format::Text, Some(answer)) => stdout.write_all(&answer.body)?,
            (Format::Text, None) => {}
        }
        stdout.flush()
    }

    /// The same in one line, for one request of several.
    pub(super) fn print_line(&self, format: Format, voice: &Voice) -> io::Result<()> {
        self.tell(voice);
        let mut stdout = io::stdout();
        match format {
            Format::Json => writeln!(stdout, "{}", self.json())?,
            Format::Text => {
                let status = self.status.map_or_else(|| "-".to_owned(), |code| code.to_string());
                writeln!(stdout, "{} {} {status}", self.key, self.outcome)?;
            }
        }
        stdout.flush()
    }

    /// Before anything else is done, so that a command which is killed has said it.
    fn tell(&self, voice: &Voice) {
        let why = self.why.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        let name = match self.outcome {
            "not_through" => "did not get through",
            "not_sent" => "not sent",
            name => name,
        };
        voice.say_of(&self.key, &format!("{name}{why}. {}", self.advice));
        voice.end(self.exit_code());
    }

    fn json(&self) -> Value {
        json!({
            "key": self.key,
            "outcome": self.outcome,
            "status": self.status,
            "why": self.why,
            "advice": self.advice,
            "exit": self.code,
            "body": self.answer.as_ref().map(|answer| answer.text()),
        })
    }
}

/// What is left, and the exit code of the worst. A journal that could not be written does not change what became of an
/// operation, which is only asked about once more.
pub(super) fn conclude(resumed: &Resumed, voice: &Voice) -> ExitCode {
    let failures = resumed.failures.iter();
    // That an outcome was not printed was said at once.
    for (key, error) in failures.filter(|(_, error)| !matches!(error, JournalError::NotTold(_))) {
        voice.say_of(
            key.as_str(),
            &format!("the request stays in the journal, run --resume again later: {error}"),
        );
    }
    if resumed.left > 0 {
        let is_untold =
            |(_, error): &(Key, JournalError)| matches!(error, JournalError::NotTold(_));
        let why = match resumed.failures.iter().any(is_untold) {
            true => "because their outcomes could not be printed",
            false => "because too many failed",
        };
        voice.say(&format!(
            "{} requests were skipped, {why}; run --resume again later",
            resumed.left
        ));
    }
    let is_told = |key| resumed.operations.iter().any(|(told, _)| told == key);
    let is_left = resumed.left > 0 || !resumed.failures.iter().all(|(key, _)| is_told(key));
    let left = if is_left { NOT_THROUGH } else { HAPPENED };
    let codes = resumed.operations.iter().map(|(key, end)| Report::of(key, end).code);
    let worst = codes.chain([left]).max();
    ExitCode::from(worst.unwrap_or(HAPPENED))
}

/// An error and what caused it, in one line.
pub(super) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text += &format!(": {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn location(answer: &Answer) -> Option<&str> {
    answer.header(&LOCATION)
}

const HAPPENED: u8 = 0;
const REFUSED: u8 = 1;
const USAGE: u8 = 2;
const NOT_THROUGH: u8 = 3;
const UNKNOWN: u8 = 4;
