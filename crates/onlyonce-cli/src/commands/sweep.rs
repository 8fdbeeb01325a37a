//! `onlyonce sweep`: delete what has expired, and trust a clock again that was set forward.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use onlyonce::scope::OperationId;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::redis::RedisStore;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::store::{Fault, Maintain, Store};
use tokio::time::{Instant, sleep};

use super::exit;
use crate::config::{Config, StoreFlag, StoreUrl};

/// Delete expired records.
///
/// A gateway does this by itself. When the store's clock was set forward, though, nothing expires, lapses or is
/// swept on any node, until --confirm-clock says that the clock is right now.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Sweep {
    /// The store: sqlite:FILE (of no running gateway), postgres://…, redis://… or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    store: Option<StoreFlag>,
    /// The configuration that names the store
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store's clock is right: let records expire and leases lapse again
    #[arg(long)]
    confirm_clock: bool,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce sweep --store sqlite:onlyonce.db
  onlyonce sweep --config onlyonce.toml --confirm-clock";

impl Sweep {
    /// Sweeps the store until nothing is left to sweep.
    pub fn run(self) -> ExitCode {
        let store = match self.store() {
            Ok(store) => store,
            Err(message) => return exit::usage(&message),
        };
        match super::block_on(sweep(&store, self.confirm_clock)) {
            Ok(Ok(deleted)) => {
                println!("{deleted} expired records deleted");
                ExitCode::SUCCESS
            }
            Ok(Err(message)) => exit::trouble(&message),
            Err(error) => exit::trouble(&format!("cannot start: {error}")),
        }
    }

    fn store(&self) -> Result<StoreUrl, String> {
        match (&self.store, &self.config) {
            (Some(store), _) => store.url().map_err(|error| format!("--store: {error}")),
            (None, Some(file)) => Config::load(file).map(|c| c.store).map_err(|e| e.to_string()),
            (None, None) => Err("there is no store: pass --store or --config".to_owned()),
        }
    }
}

async fn sweep(url: &StoreUrl, confirm_clock: bool) -> Result<usize, String> {
    let refused =
        |error: &dyn ToString| format!("the store cannot be opened: {}", error.to_string());
    let swept = match url {
        StoreUrl::Memory => return Err("memory: has nothing to sweep".to_owned()),
        StoreUrl::Sqlite(path) => {
            super::demand_file(path)?;
            let store = SqliteStore::open(path).await.map_err(|error| refused(&error))?;
            sweep_all(&store, confirm_clock).await
        }
        StoreUrl::Postgres(url) => {
            let store = PostgresStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            sweep_all(&store, confirm_clock).await
        }
        StoreUrl::Redis(url) => {
            let store = RedisStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            sweep_all(&store, confirm_clock).await
        }
    };
    let swept = swept.map_err(|fault| format!("the store did not do it: {}", fault.error()))?;
    swept.ok_or_else(|| HELD.to_owned())
}

/// The clock first: while it is held, nothing is swept, and there is no count.
async fn sweep_all<S: Store + Maintain>(
    store: &S,
    confirm_clock: bool,
) -> Result<Option<usize>, Fault> {
    if confirm_clock {
        store.hold_clock(false).await?;
    }
    if !is_trusted(store).await? {
        return Ok(None);
    }
    let mut deleted = 0;
    loop {
        let swept = store.sweep(ROWS).await?;
        deleted += swept.deleted;
        if !swept.more {
            return Ok(Some(deleted));
        }
    }
}

/// Where no gateway ran for a while, a store of many nodes waits before it trusts its clock: that is waited for.
async fn is_trusted<S: Store + Maintain>(store: &S) -> Result<bool, Fault> {
    let any = OperationId::from_bytes([0; 16]);
    let end = Instant::now() + TRUST_WAIT;
    while store.load(any).await?.clock_held {
        if store.limits().embedded || Instant::now() > end {
            return Ok(false);
        }
        sleep(TRUST_PAUSE).await;
    }
    Ok(true)
}

const HELD: &str = "the store's clock was set forward, and is held: nothing expires. Put it right, then run \
    `onlyonce sweep --confirm-clock`";
/// Some more than the 15 s for which a store may wait for other nodes to tell of a jump.
const TRUST_WAIT: Duration = Duration::from_secs(17);
const TRUST_PAUSE: Duration = Duration::from_millis(200);
/// How many records are deleted at a time.
const ROWS: usize = 5000;
