//! The trail in a store, which a gateway may be running on.

use std::path::Path;
use std::time::Duration;

use onlyonce::IdChange;
use onlyonce::scope::{KeyDigest, Secret};
use onlyonce::store::audit::{AuditOptions, EntryQuery, Head, Trail, verify};
#[cfg(feature = "dynamodb")]
use onlyonce::store::dynamodb::DynamoStore;
use onlyonce::store::postgres::{PostgresStore, SchemaFound, inspect};
use onlyonce::store::sqlite::SqliteTrail;
use onlyonce::store::{Fault, Maintain};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};
use serde_json::Value;

use super::format::{entry_value, verified_value};
use super::source::{Page, Query};
use crate::commands::access::Failed;
use crate::commands::demand_file;
use crate::commands::doctor::told;
use crate::config::{Config, StoreFlag, StoreUrl};

/// The trail in the store that the command line names.
pub(super) struct StoreTrail {
    store: StoreUrl,
    /// Of its keys.
    secret: Option<Secret>,
    trail: Box<dyn Trail>,
}

impl StoreTrail {
    /// Opens it for reading.
    pub(super) async fn open(
        flag: Option<&StoreFlag>,
        config: Option<&Path>,
    ) -> Result<Self, Failed> {
        let (store, secret) = named(flag, config).map_err(|message| Failed::usage(&message))?;
        let refused = |error| Failed::trouble(&format!("the trail cannot be opened: {error}"));
        let trail = open(&store).await.map_err(refused)?;
        Ok(Self { store, secret, trail })
    }

    pub(super) async fn page(&self, query: &Query<'_>) -> Result<Page, Failed> {
        let Query { id, key, since, until, after, limit } = *query;
        let key = key.map(|key| KeyDigest::of_key(self.secret.as_ref(), key));
        let query = EntryQuery { id, key, since, until, after, limit };
        let page = self.trail.entries(query).await.map_err(unread)?;
        Ok(Page { entries: page.entries.iter().map(entry_value).collect(), next: page.next })
    }

    pub(super) async fn heads(&self) -> Result<Vec<Head>, Failed> {
        self.trail.heads().await.map_err(unread)
    }

    pub(super) async fn verify(&self, kept: &[Head]) -> Result<Value, Failed> {
        let verified = verify(&*self.trail, kept).await.map_err(unread)?;
        Ok(verified_value(&verified))
    }

    /// In a store that keeps no trail there is no chain, not even one without a head.
    pub(super) async fn demand_trail(&self) -> Result<(), Failed> {
        if !self.heads().await?.is_empty() {
            return Ok(());
        }
        match self.trail.writers().await.map_err(unread)?.is_empty() {
            true => Err(Failed::trouble(&NO_TRAIL)),
            false => Ok(()),
        }
    }

    /// Without the store's secret a key is not found, and "no entries" would be a lie.
    pub(super) async fn demand_secret(&self) -> Result<(), Failed> {
        let unclear = |error| {
            Failed::trouble(&format!(
                "no entries were found, and the store does not say whether its keys are kept under a secret: {error}"
            ))
        };
        let kept = match self.secret {
            Some(_) => return Ok(()),
            None => kept_secret(&self.store).await.map_err(unclear)?,
        };
        match kept.is_none_or(|kept| kept == IdChange::NO_SECRET) {
            true => Ok(()),
            false => Err(Failed::usage(&NO_SECRET)),
        }
    }
}

/// The store, and the secret of its keys.
fn named(
    flag: Option<&StoreFlag>,
    config: Option<&Path>,
) -> Result<(StoreUrl, Option<Secret>), String> {
    let config = config.map(Config::load).transpose().map_err(|error| error.to_string())?;
    let store = flag.map(StoreFlag::url).transpose();
    let store = store.map_err(|error| format!("--store: {error}"))?;
    let secret = config.as_ref().and_then(|config| config.secret.clone());
    let store = store.or_else(|| config.map(|config| config.store));
    let store = store.ok_or("there is no store: pass --store or --config")?;
    Ok((store, secret))
}

fn unread(fault: Fault) -> Failed {
    Failed::trouble(&format!("the trail cannot be read: {}", fault.error()))
}

const NO_TRAIL: &str = "there is no audit trail in this store: set [audit] and restart";
const NO_SECRET: &str = "the keys in this trail are kept under a secret, so a key cannot be looked up without it: \
                         pass --config with the `secret`, or use --id, or --admin";

/// How a command keeps the trail of a store when no configuration says it: if the store has one, it goes on. Such a command
/// deletes no old entries, so the time that they are kept for does not matter.
pub(in crate::commands) async fn kept_by(store: &StoreUrl) -> Result<Option<AuditOptions>, Failed> {
    if let StoreUrl::Redis(_) | StoreUrl::Memory = store {
        return Ok(None);
    }
    let refused = |error| Failed::trouble(&format!("the store cannot be opened: {error}"));
    let heads = open(store).await.map_err(refused)?.heads().await.map_err(unread)?;
    Ok((!heads.is_empty()).then(AuditOptions::default))
}

async fn open(store: &StoreUrl) -> Result<Box<dyn Trail>, String> {
    match store {
        StoreUrl::Sqlite(path) => {
            demand_file(path)?;
            Ok(Box::new(SqliteTrail::open(path).map_err(|error| told(&error))?))
        }
        StoreUrl::Postgres(url) => {
            demand_tables(url.reveal()).await?;
            let store = PostgresStore::open(url.reveal()).await;
            Ok(Box::new(store.map_err(|error| told(&error))?))
        }
        StoreUrl::Redis(_) => Err("Redis alone keeps no audit trail".to_owned()),
        #[cfg(feature = "dynamodb")]
        StoreUrl::DynamoDb(address) => {
            let store = DynamoStore::open(address).await;
            Ok(Box::new(store.map_err(|error| told(&error))?))
        }
        StoreUrl::Memory => Err("memory: is gone with its process, and its trail too".to_owned()),
    }
}

/// A store that is opened makes its tables; a command that only looks must not.
async fn demand_tables(url: &str) -> Result<(), String> {
    let facts = inspect(url).await.map_err(|error| told(&error))?;
    match facts.schema {
        SchemaFound::Nothing { .. } => {
            Err(format!("{} has no store: `onlyonce serve` makes it", facts.address))
        }
        _ => Ok(()),
    }
}

/// What the store knows of the secret of its ids.
async fn kept_secret(store: &StoreUrl) -> Result<Option<String>, String> {
    match store {
        StoreUrl::Sqlite(path) => read_secret(path).map_err(|error| told(&error)),
        StoreUrl::Postgres(url) => {
            let store = PostgresStore::open(url.reveal()).await.map_err(|error| told(&error))?;
            let kept = store.check_value(IdChange::SECRET, None, None).await;
            kept.map_err(|fault| told(fault.error()))
        }
        #[cfg(feature = "dynamodb")]
        StoreUrl::DynamoDb(address) => {
            let store = DynamoStore::open(address).await.map_err(|error| told(&error))?;
            let kept = store.check_value(IdChange::SECRET, None, None).await;
            kept.map_err(|fault| told(fault.error()))
        }
        StoreUrl::Redis(_) | StoreUrl::Memory => Ok(None),
    }
}

/// From a file that a gateway may have open: nothing is written, not even a log written back.
fn read_secret(path: &Path) -> rusqlite::Result<Option<String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(BUSY_WAIT)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let sql = "SELECT value FROM check_value WHERE name = ?1";
    db.query_row(sql, [IdChange::SECRET], |row| row.get(0)).optional()
}

const BUSY_WAIT: Duration = Duration::from_secs(5);
