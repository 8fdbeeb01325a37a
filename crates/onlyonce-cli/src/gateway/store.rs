//! Opens the store that the configuration names.

use onlyonce::store::layered::{Layered, LayeredOptions};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::redis::{Promise, RedisStore};
use onlyonce::store::sqlite::{self, SqliteStore};
use onlyonce::{Once, Settings};

use super::StartError;
use crate::config::{Config, FilterUrl, StoreUrl};

/// The settings of an engine on that store. What the store itself has to say goes to stderr.
pub(super) async fn open(config: &Config) -> Result<Settings, StartError> {
    Ok(match &config.store {
        StoreUrl::Memory => Once::settings(MemoryStore::new()),
        StoreUrl::Sqlite(path) => {
            Once::settings(SqliteStore::open(path).await.map_err(|error| refused(&told(&error)))?)
        }
        StoreUrl::Postgres(url) => {
            let postgres =
                PostgresStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            match &config.filter {
                None => Once::settings(postgres),
                Some(filter) => Once::settings(filtered(postgres, filter, config)?),
            }
        }
        StoreUrl::Redis(url) => {
            let redis = RedisStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            check(config, &redis.promise())?;
            eprintln!("onlyonce: {}", redis.promise());
            Once::settings(redis)
        }
    })
}

fn filtered(
    postgres: PostgresStore,
    filter: &FilterUrl,
    config: &Config,
) -> Result<Layered<PostgresStore>, StartError> {
    let options = LayeredOptions::new();
    let options = match &config.secret {
        Some(secret) => options.with_secret(secret.derive("the filter")),
        None => options,
    };
    Layered::new(postgres, filter.reveal(), options).map_err(|error| refused(&error))
}

fn refused(error: &impl ToString) -> StartError {
    StartError::Store(error.to_string())
}

/// Some refusals leave the reason to what lies below.
fn told(error: &sqlite::OpenError) -> String {
    match error {
        sqlite::OpenError::Io { source, .. } => format!("{error}: {source}"),
        sqlite::OpenError::Engine { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}

/// Payments are not kept where they may be lost, unless someone says so.
fn check(config: &Config, promise: &Promise) -> Result<(), StartError> {
    let payments = config.routes.iter().find(|route| route.is_payments);
    match payments {
        Some(route) if !promise.is_durable() && !config.accept_loss => Err(StartError::Loss {
            route: route.matching.to_string(),
            promise: promise.to_string(),
        }),
        _ => Ok(()),
    }
}
