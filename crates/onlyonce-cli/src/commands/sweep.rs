//! `onlyonce sweep`: delete what has expired.

use std::path::PathBuf;
use std::process::ExitCode;

use onlyonce::scope::OperationId;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::redis::RedisStore;
use onlyonce::store::sqlite::SqliteStore;
use onlyonce::store::{Fault, Maintain, Store};

use super::exit;
use crate::config::{Config, StoreFlag, StoreUrl};

/// Delete expired records.
///
/// A gateway does this by itself. This command goes by the store's own clock: check first that it is right.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Sweep {
    /// The store: sqlite:FILE (of no running gateway), postgres://…, redis://… or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    store: Option<StoreFlag>,
    /// The configuration that names the store
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce sweep --store sqlite:onlyonce.db
  onlyonce sweep --config onlyonce.toml";

impl Sweep {
    /// Sweeps the store until nothing is left to sweep.
    pub fn run(self) -> ExitCode {
        let store = match self.store() {
            Ok(store) => store,
            Err(message) => return exit::usage(&message),
        };
        match super::block_on(sweep(&store)) {
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

async fn sweep(url: &StoreUrl) -> Result<usize, String> {
    let refused =
        |error: &dyn ToString| format!("the store cannot be opened: {}", error.to_string());
    let swept = match url {
        StoreUrl::Memory => return Err("memory: has nothing to sweep".to_owned()),
        StoreUrl::Sqlite(path) => {
            super::demand_file(path)?;
            let store = SqliteStore::open(path).await.map_err(|error| refused(&error))?;
            sweep_all(&store).await
        }
        StoreUrl::Postgres(url) => {
            let store = PostgresStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            sweep_all(&store).await
        }
        StoreUrl::Redis(url) => {
            let store = RedisStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            sweep_all(&store).await
        }
    };
    swept.map_err(|fault| format!("the store did not do it: {}", fault.error()))
}

async fn sweep_all<S: Store + Maintain>(store: &S) -> Result<usize, Fault> {
    let until = store.load(OperationId::from_bytes([0; 16])).await?.now;
    let mut deleted = 0;
    loop {
        let swept = store.sweep(until, ROWS).await?;
        deleted += swept.deleted;
        if !swept.more {
            return Ok(deleted);
        }
    }
}

/// How many records are deleted at a time.
const ROWS: usize = 5000;
