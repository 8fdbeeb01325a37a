//! `onlyonce migrate`: from the file of one process to the database of many.

mod destination;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use onlyonce::clock::StoreTime;
use onlyonce::record::{Record, State, StateKind, StateSet, TakenFrom};
use onlyonce::scope::OperationId;
use onlyonce::store::sqlite::{SqliteOpenError, SqliteStore};
use onlyonce::store::{Fault, Maintain, Page, Scan, StoreError};

use self::destination::{Destination, Filling};
use super::exit;
use crate::config::{StoreFlag, StoreUrl};
use crate::gateway::id_check;

/// Make the tables and functions of a Postgres database, or a table of DynamoDB, or move every live record from SQLite there.
///
/// Without --from it makes what is missing, and ends: for programs that call the functions in transactions of their own.
///
/// With --from, stop the gateway first: only one process may open its file. Every record that has not expired is copied as it is,
/// completed, unknown and released ones, and what the file remembers of `secret` and scope; then the file is
/// marked as moved, and no gateway opens it again. A migration that was interrupted is repeated with the same
/// command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    /// Where the records are: sqlite:FILE
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    from: Option<StoreFlag>,
    /// The database, and where the records go: postgres://…, dynamodb:TABLE or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    to: StoreFlag,
    /// Tell the database apart from the one whose whole disk it was copied from: for a copy that shares a Redis filter with the
    /// original. No gateway may run on it meanwhile
    #[arg(long, conflicts_with = "from")]
    new_identity: bool,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce migrate --to env:DATABASE_URL
  onlyonce migrate --from sqlite:onlyonce.db --to env:DATABASE_URL
  onlyonce migrate --to env:COPY_OF_PRODUCTION --new-identity";

impl Migrate {
    /// Makes the tables, or moves the records and says how many.
    pub fn run(self) -> ExitCode {
        let urls = (self.from.map(|from| from.url()).transpose(), self.to.url());
        let (from, to) = match urls {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return exit::usage(&error.to_string()),
        };
        let done = match (&from, Destination::of(to)) {
            (None, Some(to)) if self.new_identity => super::block_on(to.new_identity()),
            (None, Some(to)) => super::block_on(to.make()),
            (Some(StoreUrl::Sqlite(path)), Some(to)) => {
                super::block_on(move_all(path, &to, &format!("sqlite:{}", path.display())))
            }
            _ => {
                return exit::usage(
                    "migrate goes --to postgres://… or dynamodb:TABLE, and --from sqlite:FILE",
                );
            }
        };
        match done {
            Ok(Ok(done)) => {
                println!("{done}");
                ExitCode::SUCCESS
            }
            Ok(Err(message)) => exit::trouble(&message),
            Err(error) => exit::trouble(&format!("cannot start: {error}")),
        }
    }
}

async fn move_all(path: &Path, to: &Destination, name: &str) -> Result<String, String> {
    let moved = moved(path, to, name).await?;
    Ok(format!("{moved}; {name} is marked as moved, and is not opened again"))
}

async fn moved(path: &Path, to: &Destination, name: &str) -> Result<Moved, String> {
    super::demand_file(path)?;
    let opened = SqliteStore::open(path).await;
    let is_moved = |error: &SqliteOpenError| match error {
        SqliteOpenError::Moved { to: before, .. } => *before == to.to_string(),
        _ => false,
    };
    // Interrupted right before the end: the records are there, and only the end is missing.
    if opened.as_ref().is_err_and(is_moved) {
        let filling = to.begin(name).await?;
        return filling.finish().await.map(|()| Moved::default()).map_err(interrupted);
    }
    let from = opened.map_err(|error| refused(name, &error))?;
    let filling = to.begin(name).await?;
    let moved = migrate(&from, &filling, &to.to_string()).await;
    from.close().await;
    moved.map_err(interrupted)
}

fn refused(what: &str, error: &dyn std::error::Error) -> String {
    format!("{what} cannot be opened: {error}")
}

fn interrupted(fault: Fault) -> String {
    match fault.error() {
        StoreError::Refused(why) => format!("it cannot be finished: {why}"),
        error => format!(
            "it is not finished, and no gateway opens the new store until it is; repeat it: {error}"
        ),
    }
}

/// How many records of each kind were moved.
#[derive(Debug, Default)]
struct Moved {
    completed: usize,
    unknown: usize,
    released: usize,
}

impl std::fmt::Display for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { completed, unknown, released } = self;
        let all = completed + unknown + released;
        write!(
            f,
            "{all} records moved ({completed} completed, {unknown} unknown, {released} released)"
        )
    }
}

impl Moved {
    fn count(&mut self, record: &Record) {
        match record.state.kind() {
            StateKind::Completed => self.completed += 1,
            StateKind::Released => self.released += 1,
            StateKind::Unknown | StateKind::Running => self.unknown += 1,
        }
    }
}

async fn migrate(from: &SqliteStore, to: &Filling, name: &str) -> Result<Moved, Fault> {
    let mut moved = Moved::default();
    let mut after = None;
    loop {
        let states = StateSet::of(&StateKind::ALL);
        let page = from.scan(Scan { states, after, limit: PAGE_ROWS }).await?;
        after = page.next;
        let live = live(&page, to.now().await?);
        live.iter().for_each(|(_, record)| moved.count(record));
        to.import(&live).await?;
        if std::io::stderr().is_terminal() {
            eprint!("\r{moved}");
        }
        if after.is_none() {
            break;
        }
    }
    for name in id_check::NAMES {
        let kept = from.check_value(name, None, None).await?;
        to.import_check_value(name, kept.as_deref()).await?;
    }
    // In this order: interrupted in between, neither of them is opened, and repeating it ends it.
    from.mark_moved(name).await?;
    to.finish().await?;
    Ok(moved)
}

/// What has not expired, its times told by the other clock: each record lives for as long as it would have here.
fn live(page: &Page, there: StoreTime) -> Vec<(OperationId, Record)> {
    let ahead_ms = there.since_ms(page.now);
    let is_live = |record: &Record| !record.is_expired(page.now);
    let records = page.records.iter().filter(|(_, record)| is_live(record));
    records.map(|(id, record)| (*id, shifted(record, ahead_ms))).collect()
}

fn shifted(record: &Record, by_ms: i64) -> Record {
    let mut record = record.clone();
    record.first_claimed_at = record.first_claimed_at.plus_ms(by_ms);
    match &mut record.state {
        State::Running { lease_until: at }
        | State::Unknown { since: at }
        | State::Released { expires_at: at }
        | State::Completed { expires_at: at, .. } => *at = at.plus_ms(by_ms),
    }
    match &mut record.taken_from {
        Some(TakenFrom::Unknown { since: at } | TakenFrom::Released { expires_at: at }) => {
            *at = at.plus_ms(by_ms);
        }
        None => {}
    }
    record
}

/// How many records are moved at a time.
const PAGE_ROWS: usize = 500;
