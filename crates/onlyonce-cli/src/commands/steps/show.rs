//! `onlyonce steps show`.

use std::fmt::Write;
use std::process::ExitCode;

use onlyonce::steps::{StepsState, StoredPoint, StoredSteps};
use serde_json::{Value, json};

use super::place::{NameFlags, PlaceFlags};
use super::{Format, object};
use crate::commands::access::{Failed, print};
use crate::words::plain;

/// Show one operation: first what became of it.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    #[command(flatten)]
    name: NameFlags,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    place: PlaceFlags,
}

impl Show {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let operators = self.place.open().await?;
        let (stored, points) = self.name.find(&operators).await?;
        print(&match self.format {
            Format::Json => whole(&stored, &points).to_string() + "\n",
            Format::Text => told(&stored, &points),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn whole(stored: &StoredSteps, points: &[StoredPoint]) -> Value {
    // What cannot be read as JSON is shown as the text that it is.
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let point = |point: &StoredPoint| {
        let at = point.committed_at.rfc3339();
        json!({ "name": point.name, "value": value(&point.value), "committed_at": at })
    };
    let mut whole = object(stored);
    whole["request"] = value(&stored.request);
    whole["points"] = points.iter().map(point).collect();
    whole
}

fn told(stored: &StoredSteps, points: &[StoredPoint]) -> String {
    let mut told = verdict(stored) + "\n\n";
    let due = match stored.state {
        StepsState::Running => "Lease ends",
        _ => "Tried again",
    };
    let facts = [
        ("Key", Some(plain(&stored.key))),
        ("Id", Some(stored.id.clone())),
        ("Name", Some(plain(&stored.name))),
        ("State", Some(stored.state.name().to_owned())),
        ("Since", Some(stored.since.rfc3339())),
        ("Begun", Some(stored.begun_at.rfc3339())),
        (due, stored.due_at.map(|due_at| due_at.rfc3339())),
        ("Attempts", Some(stored.attempts.to_string())),
        ("Calling", stored.calling.as_deref().map(plain)),
        ("Quiet after", stored.quiet_until.map(|quiet_until| quiet_until.rfc3339())),
        ("Revision", Some(stored.revision.to_string())),
        ("Unreadable", stored.unreadable.as_deref().map(plain)),
        ("Error", stored.error.as_deref().map(plain)),
        ("Operator", stored.note.as_deref().map(plain)),
        ("Answer", stored.status.map(|status| status.to_string())),
        ("Request", Some(plain(&stored.request))),
    ];
    for (word, value) in facts.into_iter().filter_map(|(word, value)| Some((word, value?))) {
        // A string takes everything that is written to it.
        let _ = writeln!(told, "{word:<12} {value}");
    }
    told += "\nPoints\n";
    for (number, point) in points.iter().enumerate() {
        let (name, value) = (plain(&point.name), plain(&point.value));
        let _ =
            writeln!(told, "  {}. {}  {name}  {value}", number + 1, point.committed_at.rfc3339());
    }
    told
}

/// What became of it, and what to do.
fn verdict(stored: &StoredSteps) -> String {
    if stored.unreadable.is_some() {
        return UNREADABLE.to_owned();
    }
    match (stored.state, stored.calling.as_ref().filter(|_| !stored.is_repeatable)) {
        (StepsState::Running, _) => "A process does its steps, or its lease is not over yet.".to_owned(),
        (StepsState::Waiting, _) => {
            "The last attempt failed. It is made again by itself if a completer runs.".to_owned()
        }
        (StepsState::Stuck, _) => "The stored points do not fit the program. Deploy a version with these steps; it goes on by \
                              itself then, or at once with `steps retry`."
            .to_owned(),
        (StepsState::Unknown, Some(calling)) => format!(
            "\"{}\" may have been done, and is not done again by itself. Find out. If it was done, `steps settle` gives the \
             answer; if it was not, `steps retry --call-again {}` does it.",
            plain(calling),
            stored.revision
        ),
        (StepsState::Unknown, None) => "It was given up. Fix the cause, then `steps retry`; or `steps settle` gives the answer."
            .to_owned(),
        (StepsState::Completed, _) => "It is done, and retries get its answer.".to_owned(),
    }
}

const UNREADABLE: &str = "It cannot be read: another version has written it, or somebody has changed it by hand. Nothing more is \
                          done, and its client gets no answer. Run the version that has written it, or repair the row: see \
                          docs/recovery-points.md.";
