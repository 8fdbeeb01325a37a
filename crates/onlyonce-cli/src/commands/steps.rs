//! `onlyonce steps`: find operations of several steps, and retry or settle those that do not go on.

mod change;
mod list;
mod place;
mod show;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use onlyonce::steps::{StepsState, StoredSteps};
use serde_json::{Value, json};

use self::change::{Retry, Settle};
use self::list::List;
use self::show::Show;
use super::access;

/// Find operations of several steps (recovery points), and retry or settle those that do not go on.
///
/// On the database of the program that does the steps.
#[derive(Debug, clap::Args)]
#[command(name = "steps", after_help = EXAMPLES)]
pub struct StepsCommand {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce steps list --store env:DATABASE_URL
  onlyonce steps list --state stuck --format json --store sqlite:shop.db
  onlyonce steps show order-4711 --store env:DATABASE_URL
  onlyonce steps retry order-4711 --reason 'the card network is back' --store env:DATABASE_URL
  onlyonce steps settle order-4711 --status 201 --body answer.json --reason 'the mail was sent' --store env:DATABASE_URL";

#[derive(Debug, Subcommand)]
enum Command {
    /// List operations that are not completed
    List(List),
    /// Show one operation: its points, what they remember, and why it does not go on
    Show(Show),
    /// Let an operation go on now, with all of its attempts
    Retry(Retry),
    /// Give an operation its answer: every retry of the client gets it, and no step is done any more
    Settle(Box<Settle>),
}

impl StepsCommand {
    /// Runs the command: data to stdout, all else to stderr.
    pub fn run(self) -> ExitCode {
        access::run(async {
            match self.command {
                Command::List(list) => list.run().await,
                Command::Show(show) => show.run().await,
                Command::Retry(retry) => retry.run().await,
                Command::Settle(settle) => settle.run().await,
            }
        })
    }
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// An operation as JSON.
fn object(stored: &StoredSteps) -> Value {
    json!({
        "id": stored.id,
        "name": stored.name,
        "key": stored.key,
        "state": stored.state.name(),
        "since": stored.since.rfc3339(),
        "begun_at": stored.begun_at.rfc3339(),
        "due_at": stored.due_at.map(|due_at| due_at.rfc3339()),
        "attempts": stored.attempts,
        "point": stored.point,
        "calling": stored.calling,
        "repeatable": stored.is_repeatable,
        "quiet_until": stored.quiet_until.map(|quiet_until| quiet_until.rfc3339()),
        "revision": stored.revision,
        "error": stored.error,
        "note": stored.note,
        "status": stored.status,
        "unreadable": stored.unreadable,
    })
}

/// Its state in one word.
fn state_word(stored: &StoredSteps) -> &'static str {
    if stored.unreadable.is_some() { "unreadable" } else { stored.state.name() }
}

/// A state by its name.
fn state(name: &str) -> Result<StepsState, String> {
    let names = StepsState::ALL.map(StepsState::name).join(", ");
    let found = StepsState::ALL.into_iter().find(|state| state.name() == name);
    found.ok_or_else(|| format!("the states are {names}"))
}
