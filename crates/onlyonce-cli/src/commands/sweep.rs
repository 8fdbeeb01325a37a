//! `onlyonce sweep`: delete what has expired.

use std::path::PathBuf;
use std::process::ExitCode;

use onlyonce::clock::{Clock, StoreTime, SystemClock};
use onlyonce::scope::OperationId;
use onlyonce::store::audit::AuditOptions;
#[cfg(feature = "dynamodb")]
use onlyonce::store::dynamodb::DynamoStore;
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::redis::RedisStore;
use onlyonce::store::sqlite::{SqliteOptions, SqliteStore};
use onlyonce::store::{Fault, Maintain, Store};
use serde_json::{Value, json};

use super::access::{self, AccessFlags, Failed, TrustFlags, print};
use super::audit::kept_by;
use super::doctor::{CLOCK_WRONG_MS, told};
use crate::config::{Config, StoreFlag, StoreUrl};

/// Delete expired records.
///
/// A gateway does this by itself. On a store this command goes by the store's own clock, and refuses if that clock is more
/// than a minute off this machine's.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Sweep {
    /// The store: sqlite:FILE (of no running gateway), postgres://…, redis://…, dynamodb:TABLE or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    store: Option<StoreFlag>,
    /// The configuration that names the store
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The admin listener of a running gateway, instead of a store
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "config"])]
    admin: Option<String>,
    /// The token of the admin listener; else the variable ONLYONCE_ADMIN_TOKEN is read
    #[arg(long, value_name = "TOKEN", requires = "admin")]
    token: Option<String>,
    #[command(flatten)]
    trust: TrustFlags,
}

const EXAMPLES: &str = "\
Examples:
  onlyonce sweep --store sqlite:onlyonce.db
  onlyonce sweep --config onlyonce.toml
  onlyonce sweep --admin http://127.0.0.1:8081";

impl Sweep {
    /// Sweeps the store until nothing is left to sweep.
    pub fn run(self) -> ExitCode {
        access::run(self.sweep())
    }

    async fn sweep(self) -> Result<ExitCode, Failed> {
        let deleted = match &self.admin {
            Some(admin) => {
                let (token, trust) = (self.token.clone(), self.trust.clone());
                sweep_at(&AccessFlags::of_gateway(admin, token, trust)).await?
            }
            None => {
                let (store, audit) = self.store().await?;
                let swept = sweep_store(&store, audit).await;
                swept.map_err(|message| Failed::trouble(&message))?.into()
            }
        };
        print(&format!("{deleted} expired records deleted\n"))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The store, and how its trail is kept.
    async fn store(&self) -> Result<(StoreUrl, Option<AuditOptions>), Failed> {
        let config = self.config.as_ref().map(|file| Config::load(file)).transpose();
        let config = config.map_err(|error| Failed::usage(&super::config::told(&error)))?;
        let named = self.store.as_ref().map(StoreFlag::url).transpose();
        let named = named.map_err(|error| Failed::usage(&format!("--store: {error}")))?;
        match (named, config) {
            (Some(store), None) => {
                let audit = kept_by(&store).await?;
                Ok((store, audit))
            }
            (named, Some(config)) => Ok((named.unwrap_or(config.store), config.audit)),
            (None, None) => Err(Failed::usage(&NO_STORE)),
        }
    }
}

const NO_STORE: &str =
    "there is no store: pass --store or --config, or --admin for a running gateway";

async fn sweep_at(gateway: &AccessFlags) -> Result<Value, Failed> {
    let reason = json!({ "reason": "onlyonce sweep", "who": super::operating_user() });
    let swept = gateway.open().await?.post("sweep", &reason).await?;
    let deleted = swept.get("deleted").cloned();
    deleted
        .ok_or_else(|| Failed::trouble(&"the answer is not that of an admin listener of onlyonce"))
}

async fn sweep_store(store: &StoreUrl, audit: Option<AuditOptions>) -> Result<usize, String> {
    let refused =
        |error: &dyn std::error::Error| format!("the store cannot be opened: {}", told(error));
    match store {
        StoreUrl::Memory => Err("memory: has nothing to sweep".to_owned()),
        StoreUrl::Sqlite(path) => {
            super::demand_file(path)?;
            let options = match audit {
                Some(audit) => SqliteOptions::new().with_audit(audit),
                None => SqliteOptions::new(),
            };
            let store = SqliteStore::open_with(path, options).await;
            sweep_all(&store.map_err(|error| refused(&error))?).await
        }
        StoreUrl::Postgres(url) => {
            let options = match audit {
                Some(audit) => PostgresOptions::new().with_audit(audit),
                None => PostgresOptions::new(),
            };
            let store = PostgresStore::open_with(url.reveal(), options).await;
            sweep_all(&store.map_err(|error| refused(&error))?).await
        }
        #[cfg(feature = "dynamodb")]
        StoreUrl::DynamoDb(address) => {
            let store = DynamoStore::open(address).await.map_err(|error| refused(&error))?;
            let store = match audit {
                Some(audit) => store.with_audit(audit).map_err(|error| refused(&error))?,
                None => store,
            };
            sweep_all(&store).await
        }
        StoreUrl::Redis(url) => {
            let store = RedisStore::open(url.reveal()).await;
            sweep_all(&store.map_err(|error| refused(&error))?).await
        }
    }
}

async fn sweep_all<S: Store + Maintain>(store: &S) -> Result<usize, String> {
    let failed = |fault: Fault| format!("the store did not do it: {}", fault.error());
    let until = store.load(OperationId::from_bytes([0; 16])).await.map_err(failed)?.now;
    demand_clock(until, SystemClock.wall())?;
    let mut deleted = 0;
    loop {
        let swept = store.sweep(until, ROWS).await.map_err(failed)?;
        deleted += swept.deleted;
        if !swept.more {
            return Ok(deleted);
        }
    }
}

/// By a clock that is ahead every key is over, and a retry would be executed again.
fn demand_clock(store: StoreTime, here: StoreTime) -> Result<(), String> {
    if store.since_ms(here).abs() <= CLOCK_WRONG_MS {
        return Ok(());
    }
    let (store, here) = (store.rfc3339(), here.rfc3339());
    Err(format!(
        "the store's clock says {store}, and this machine's clock says {here}: by a wrong clock keys would be deleted that \
         still live. Nothing was deleted; synchronise both clocks (NTP) and run it again, or let a running gateway do it: --admin"
    ))
}

/// How many records are deleted at a time.
const ROWS: usize = 5000;
