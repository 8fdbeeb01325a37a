//! `onlyonce outbox`: what waits in an outbox, and its parked messages.

mod change;
mod list;
mod message;
mod place;
mod status;
mod table;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

use self::change::{Discard, Retry};
use self::list::List;
use self::status::Status;
use super::access;

/// See what waits in an outbox, and retry or discard parked messages.
///
/// A message is parked when its sink has refused it too often. It keeps the later messages of its topic and key waiting.
/// Relays of the outbox may run meanwhile. docs/outbox.md
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Outbox {
    #[command(subcommand)]
    command: OutboxCommand,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce outbox status --store env:DATABASE_URL
  onlyonce outbox list --store sqlite:shop.db --topic charges
  onlyonce outbox retry --store env:DATABASE_URL --topic charges --all --dry-run
  onlyonce outbox discard --store env:DATABASE_URL --id 8d777f38-5d3d-4fec-815d-20f7496026dc \\
                  --reason 'the ledger has it from the import' --format json >> discarded.jsonl";

#[derive(Debug, Subcommand)]
enum OutboxCommand {
    /// Tell what waits and what is parked, by topic; the exit code is 1 if anything is parked
    Status(Status),
    /// List parked messages, the oldest first
    List(List),
    /// Make parked messages due again, with all of their attempts
    Retry(Retry),
    /// Print parked messages, and delete them: they are then never shipped
    Discard(Discard),
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

impl Outbox {
    /// Runs the command: data to stdout, all else to stderr.
    pub fn run(self) -> ExitCode {
        access::run(async {
            match self.command {
                OutboxCommand::Status(status) => status.run().await,
                OutboxCommand::List(list) => list.run().await,
                OutboxCommand::Retry(retry) => retry.run().await,
                OutboxCommand::Discard(discard) => discard.run().await,
            }
        })
    }
}
