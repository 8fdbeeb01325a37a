//! Opens the store that the configuration names.

use onlyonce::store::layered::{Layered, LayeredOptions};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::store::redis::{Promise, RedisStore};
use onlyonce::store::sqlite::{self, SqliteStore};
use onlyonce::{Once, OnceBuilder};

use super::StartError;
use crate::config::{Config, FilterUrl, StoreUrl};

/// What the operator may want to know of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// It may lose what it said.
    pub(super) is_best_effort: bool,
    pub(super) filter: Option<Layered<PostgresStore>>,
}

/// A builder of the engine on that store. What the store itself has to say goes to stderr.
pub(super) async fn open(config: &Config) -> Result<(OnceBuilder, About), StartError> {
    let mut about = About::default();
    let builder = match &config.store {
        StoreUrl::Memory => {
            about.is_best_effort = true;
            Once::builder(MemoryStore::new())
        }
        StoreUrl::Sqlite(path) => {
            Once::builder(SqliteStore::open(path).await.map_err(|error| refused_by_sqlite(&error))?)
        }
        StoreUrl::Postgres(url) => {
            let postgres =
                PostgresStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            for warning in postgres.warnings() {
                eprintln!("onlyonce: {warning}");
            }
            match &config.filter {
                None => Once::builder(postgres),
                Some(filter) => {
                    let layered = filtered(postgres, filter, config)?;
                    about.filter = Some(layered.clone());
                    Once::builder(layered)
                }
            }
        }
        StoreUrl::Redis(url) => {
            let redis = RedisStore::open(url.reveal()).await.map_err(|error| refused(&error))?;
            let promise = redis.promise();
            check(config, &promise)?;
            eprintln!("onlyonce: {promise}");
            about.is_best_effort = !promise.is_durable();
            Once::builder(redis)
        }
    };
    Ok((builder, about))
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

/// Most refusals of a file say everything; some leave the reason to the system.
fn refused_by_sqlite(error: &sqlite::SqliteOpenError) -> StartError {
    match error {
        sqlite::SqliteOpenError::Io { .. } | sqlite::SqliteOpenError::Engine { .. } => {
            refused(error)
        }
        _ => StartError::Store(error.to_string()),
    }
}

/// The error with everything that led to it, each said once.
fn refused(error: &dyn std::error::Error) -> StartError {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    let told = causes.fold(error.to_string(), |told, cause| match cause.to_string() {
        cause if told.contains(&cause) => told,
        cause => format!("{told}: {cause}"),
    });
    StartError::Store(told)
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
