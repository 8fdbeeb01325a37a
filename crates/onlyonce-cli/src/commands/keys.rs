//! `onlyonce keys`: find operations, and settle, release, forget or erase them.

mod change;
mod filter;
mod list;
mod name;
mod show;
mod table;

use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};

pub(super) use self::change::read;
use self::change::{Change, Release, Settle};
use self::list::List;
use self::show::Show;
use super::access;

/// Find operations by their keys, and settle, release, forget or erase them.
///
/// On a running gateway (--admin), or on a store (--store, --config). A SQLite file that a gateway has open is reached
/// through the gateway.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Keys {
    #[command(subcommand)]
    command: KeysCommand,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce keys list --state unknown
  onlyonce keys show order-4711-checkout-1
  onlyonce keys settle order-4711-checkout-1 --status 201 --header 'content-type: application/json' \\
                --body answer.json --reason 'the provider has charge ch_1'
  onlyonce keys release --all --state unknown --route 'POST /charges' --reason 'the provider was down' --dry-run
  onlyonce keys list --format csv --store env:DATABASE_URL > keys.csv";

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// List operations
    List(List),
    /// Show one operation: what became of it, what to check, what may be done
    Show(Show),
    /// Write the outcome of an unknown operation: every retry gets that answer, and nothing is executed
    Settle(Box<Settle>),
    /// Give an unknown operation back, because it was not executed: the next request with its key runs it
    Release(Box<Release>),
    /// Delete a completed operation: the next request with its key runs it again
    Forget(Box<Change>),
    /// Remove the answer of a completed operation, and the text of its key: a retry gets 410, and nothing is executed
    Erase(Box<Change>),
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

impl Keys {
    /// Runs the command: data to stdout, all else to stderr.
    pub fn run(self) -> ExitCode {
        access::run(async {
            match self.command {
                KeysCommand::List(list) => list.run().await,
                KeysCommand::Show(show) => show.run().await,
                KeysCommand::Settle(settle) => settle.run().await,
                KeysCommand::Release(release) => release.run().await,
                KeysCommand::Forget(forget) => forget.run("forget").await,
                KeysCommand::Erase(erase) => erase.run("erase").await,
            }
        })
    }
}
