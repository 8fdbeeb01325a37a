//! `onlyonce audit`: what happened to operations, and whether the trail of it is whole.

mod format;
mod gateway;
mod source;
mod store;
mod time;

use std::path::PathBuf;
use std::process::ExitCode;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::audit::Head;
use serde_json::Value;

use self::format::Format;
pub(crate) use self::format::{entry_value, head_value, verified_value};
use self::source::{Query, Source, SourceFlags};
pub(super) use self::store::kept_by;
pub(crate) use self::time::Moment;
use super::access::{self, Failed, print};
use crate::words::span;

/// Read the audit trail, through a running gateway (--admin) or beside it (--store, --config).
///
/// Without a subcommand it lists entries by time, oldest first: all of them, or those of one operation, of one key
/// or of a span of time.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Audit {
    #[command(subcommand)]
    command: Option<Subcommand>,
    #[command(flatten)]
    source: SourceFlags,
    /// Only this operation
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    id: Option<OperationId>,
    /// Only operations with this key; without --admin it needs --config if the deployment has a secret
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
  onlyonce audit --admin http://127.0.0.1:8081 --key order-4711
  onlyonce audit --store sqlite:onlyonce.db --key order-4711
  onlyonce audit --config onlyonce.toml --since 2026-11-17 --until 2026-11-18 --format csv > day.csv
  onlyonce audit heads --config onlyonce.toml > heads-2026-11-17
  onlyonce audit verify --config onlyonce.toml --head heads-2026-11-17
  onlyonce audit verify --admin http://127.0.0.1:8081 --head heads-2026-11-17";

impl Audit {
    /// Reads, and prints on stdout.
    pub fn run(self) -> ExitCode {
        access::run(self.answer())
    }

    async fn answer(self) -> Result<ExitCode, Failed> {
        let kept = self.kept_heads().map_err(|message| Failed::usage(&message))?;
        let source = self.source.open().await?;
        if kept.is_empty() {
            source.demand_trail().await?;
        }
        match self.command {
            None => self.list(&source).await,
            Some(Subcommand::Heads) => {
                print_lines(self.format.heads(&source.heads().await?))?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Subcommand::Verify { .. }) => {
                let verified = source.verify(&kept).await?;
                self.told(&source, &verified).await
            }
        }
    }

    async fn list(&self, source: &Source) -> Result<ExitCode, Failed> {
        let mut query = self.query();
        let (mut head, mut is_empty) = (self.format.head(), true);
        loop {
            let page = source.page(&query).await?;
            is_empty &= page.entries.is_empty();
            let entries = page.entries.iter().map(|entry| self.format.entry(entry));
            let is_read = print_lines(head.take().into_iter().chain(entries))?;
            query.after = page.next;
            if !is_read || query.after.is_none() {
                break;
            }
        }
        if is_empty && self.key.is_some() {
            source.demand_secret().await?;
        }
        if is_empty {
            eprintln!("onlyonce: no entries");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn query(&self) -> Query<'_> {
        let now = SystemClock.wall();
        let at = |moment: Option<Moment>| moment.map(|moment| moment.at(now));
        let (since, until) = (at(self.since), at(self.until));
        Query { id: self.id, key: self.key.as_deref(), since, until, after: None, limit: PAGE_ROWS }
    }

    /// Says whether the trail is whole. Each place where it is not is a line on stdout.
    async fn told(&self, source: &Source, verified: &Value) -> Result<ExitCode, Failed> {
        print_lines(self.format.verified(verified))?;
        let (entries, writers) = (&verified["entries"], &verified["writers"]);
        if verified["ok"] != true {
            let message =
                format!("the trail was changed: {entries} entries of {writers} writers read");
            return Err(Failed::bad_news(&message));
        }
        let age = age_of_oldest(source).await?;
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
        let heads: Vec<_> = lines
            .map(|line| line.parse().map_err(|error| named(&error)))
            .collect::<Result<_, _>>()?;
        match heads.is_empty() {
            true => Err(named(&"there are no heads in it to compare with")),
            false => Ok(heads),
        }
    }
}

/// Words for the end of a sentence; none for a trail without entries.
async fn age_of_oldest(source: &Source) -> Result<String, Failed> {
    let oldest = source.page(&Query { limit: 1, ..Query::default() }).await?;
    let at = oldest.entries.first().and_then(|oldest| oldest["at"].as_str()?.parse().ok());
    let now = SystemClock.wall();
    let age = at.map(|at: Moment| span(now.since_ms(at.at(now))));
    Ok(age.map_or_else(String::new, |age| format!("; the oldest is {age} old")))
}

/// Whether somebody still reads them.
fn print_lines(lines: impl IntoIterator<Item = String>) -> Result<bool, Failed> {
    print(&lines.into_iter().map(|line| line + "\n").collect::<String>())
}

/// Entries that are read at a time: as many as the admin API gives.
const PAGE_ROWS: usize = 200;
