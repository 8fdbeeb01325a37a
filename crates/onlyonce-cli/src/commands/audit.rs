//! `onlyonce audit`: what happened to operations, and whether the trail of it is whole.

mod format;
mod time;
mod trail;

use std::path::PathBuf;
use std::process::ExitCode;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::{KeyDigest, OperationId};
use onlyonce::store::Fault;
use onlyonce::store::audit::{EntryQuery, Head, Trail, Verified, verify};

use self::format::Format;
pub(crate) use self::format::{entry_value, head_value, verified_value};
pub(crate) use self::time::Moment;
use self::trail::Source;
pub(super) use self::trail::kept_by;
use super::access::{self, Failed, print};
use crate::config::StoreFlag;
use crate::words::span;

/// Read the audit trail, also beside a running gateway.
///
/// Without a subcommand it lists entries by time, oldest first: all of them, or those of one operation, of one key
/// or of a span of time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Audit {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// The store that has the trail: sqlite:FILE, postgres://… or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse, global = true)]
    store: Option<StoreFlag>,
    /// The configuration that names the store, and the secret that a key is looked up with
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Only this operation
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    id: Option<OperationId>,
    /// Only operations with this key; needs --config if the deployment has a secret
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Not earlier than this: 2026-11-17, 2026-11-17T14:02:07Z, or 24h for that long ago
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Earlier than this
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// How entries are written
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true)]
    format: Format,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Read the whole trail, and tell where it was changed: exit code 1 if it was
    Verify {
        /// Compare with heads that were kept elsewhere: what `onlyonce audit heads` wrote
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
    },
    /// Print where each chain of the trail ends, to be kept elsewhere
    Heads,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce audit --store sqlite:onlyonce.db --key order-4711
  onlyonce audit --config onlyonce.toml --since 2026-11-17 --until 2026-11-18 --format csv > day.csv
  onlyonce audit heads --config onlyonce.toml > heads-2026-11-17
  onlyonce audit verify --config onlyonce.toml --head heads-2026-11-17";

impl Audit {
    /// Reads, and prints on stdout.
    pub fn run(self) -> ExitCode {
        access::run(self.answer())
    }

    async fn answer(self) -> Result<ExitCode, Failed> {
        let source = Source::of(self.store.as_ref(), self.config.as_deref());
        let source = source.map_err(|message| Failed::usage(&message))?;
        let kept = self.kept_heads().map_err(|message| Failed::usage(&message))?;
        let trail = source.open().await.map_err(|message| Failed::trouble(&message))?;
        let heads = trail.heads().await.map_err(unread)?;
        if heads.is_empty() && kept.is_empty() {
            return Err(Failed::trouble(&NO_TRAIL));
        }
        match self.command {
            None => self.list(&*trail, &source).await,
            Some(Subcommand::Heads) => {
                print_lines(self.format.heads(&heads))?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Subcommand::Verify { .. }) => {
                let verified = verify(&*trail, &kept).await.map_err(unread)?;
                self.told(&*trail, &verified).await
            }
        }
    }

    async fn list(&self, trail: &dyn Trail, source: &Source) -> Result<ExitCode, Failed> {
        let now = SystemClock.wall();
        let key = self.key.as_deref().map(|key| KeyDigest::of_key(source.secret.as_ref(), key));
        let (since, until) =
            (self.since.map(|since| since.at(now)), self.until.map(|at| at.at(now)));
        let mut query = EntryQuery { id: self.id, key, since, until, ..EntryQuery::all(PAGE_ROWS) };
        let (mut is_read, mut is_empty) = (print_lines(self.format.head())?, true);
        while is_read {
            let page = trail.entries(query).await.map_err(unread)?;
            is_empty &= page.entries.is_empty();
            is_read = print_lines(page.entries.iter().map(|entry| self.format.entry(entry)))?;
            query.after = page.next;
            is_read &= query.after.is_some();
        }
        if is_empty && self.key.is_some() {
            source.demand_secret().await?;
        }
        if is_empty {
            eprintln!("onlyonce: no entries");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Says whether the trail is whole. Each place where it is not is a line on stdout.
    async fn told(&self, trail: &dyn Trail, verified: &Verified) -> Result<ExitCode, Failed> {
        print_lines(self.format.verified(verified))?;
        let Verified { writers, entries, .. } = verified;
        if !verified.is_whole() {
            let message =
                format!("the trail was changed: {entries} entries of {writers} writers read");
            return Err(Failed::bad_news(&message));
        }
        let oldest = trail.entries(EntryQuery::all(1)).await.map_err(unread)?;
        let age = oldest.entries.first().map(|oldest| SystemClock.wall().since_ms(oldest.at));
        let age = age.map_or_else(String::new, |age| format!("; the oldest is {} old", span(age)));
        eprintln!("onlyonce: the trail is whole: {entries} entries of {writers} writers{age}");
        Ok(ExitCode::SUCCESS)
    }

    fn kept_heads(&self) -> Result<Vec<Head>, String> {
        let Some(Subcommand::Verify { head: Some(file) }) = &self.command else {
            return Ok(Vec::new());
        };
        let named = |error: &dyn ToString| format!("{}: {}", file.display(), error.to_string());
        let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| line.parse().map_err(|error| named(&error))).collect()
    }
}

/// Whether somebody still reads them.
fn print_lines(lines: impl IntoIterator<Item = String>) -> Result<bool, Failed> {
    print(&lines.into_iter().map(|line| line + "\n").collect::<String>())
}

fn unread(fault: Fault) -> Failed {
    Failed::trouble(&format!("the trail cannot be read: {}", fault.error()))
}

const NO_TRAIL: &str = "there is no audit trail in this store: set [audit] and restart";
/// Entries that are read at a time.
const PAGE_ROWS: usize = 500;
