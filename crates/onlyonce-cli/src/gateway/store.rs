//! Opens the store that the configuration names.

use onlyonce::clock::{Clock, StoreTime, SystemClock};
#[cfg(feature = "dynamodb")]
use onlyonce::store::dynamodb::DynamoStore;
use onlyonce::store::layered::{Layered, LayeredOptions};
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::postgres::{PostgresOptions, PostgresStore};
use onlyonce::store::redis::{Promise, RedisStore};
use onlyonce::store::sqlite::{self, SqliteOptions, SqliteStore};
use onlyonce::{Once, OnceBuilder};
use tracing::warn;

use super::StartError;
use super::census::LastCensus;
use crate::config::{Config, FilterUrl, StoreUrl};
use crate::connections::Connections;
use crate::files::Shares;

/// What the operator may want to know of the store.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// `sqlite`, `postgres`, `redis`, `dynamodb` or `memory`.
    pub(crate) kind: &'static str,
    /// When this process began to open its store.
    pub(crate) started_at: StoreTime,
    /// It may lose what it said.
    pub(crate) is_best_effort: bool,
    pub(crate) filter: Option<Layered<PostgresStore>>,
    pub(crate) census: LastCensus,
    pub(crate) listeners: Listeners,
    /// What the store said when it was opened.
    pub(crate) warnings: Vec<String>,
}

/// The connections of each listener.
#[derive(Clone, Debug)]
pub(crate) struct Listeners {
    pub(crate) clients: Connections,
    pub(crate) operators: Connections,
}

impl Listeners {
    pub(super) fn new(shares: &Shares) -> Self {
        Self {
            clients: Connections::new("clients", shares.clients),
            operators: Connections::new("admin", shares.operators),
        }
    }
}

impl About {
    fn of(store: &StoreUrl) -> Self {
        let kind = match store {
            StoreUrl::Memory => "memory",
            StoreUrl::Sqlite(_) => "sqlite",
            StoreUrl::Postgres(_) => "postgres",
            StoreUrl::Redis(_) => "redis",
            #[cfg(feature = "dynamodb")]
            StoreUrl::DynamoDb(_) => "dynamodb",
        };
        Self {
            kind,
            started_at: SystemClock.wall(),
            is_best_effort: false,
            filter: None,
            census: LastCensus::default(),
            listeners: Listeners::new(&Shares { clients: 0, operators: 0, upstream: 0 }),
            warnings: Vec::new(),
        }
    }
}

#[cfg(test)]
impl Default for About {
    fn default() -> Self {
        Self::of(&StoreUrl::Memory)
    }
}

/// A builder of the engine on that store. What the store itself has to say is logged.
pub(crate) async fn open(config: &Config) -> Result<(OnceBuilder, About), StartError> {
    let mut about = About::of(&config.store);
    let builder = match &config.store {
        StoreUrl::Memory => {
            about.is_best_effort = true;
            let store = MemoryStore::new();
            Once::builder(match config.audit {
                Some(audit) => store.with_audit(audit),
                None => store,
            })
        }
        StoreUrl::Sqlite(path) => {
            let options = SqliteOptions::new().with_forgetting_accepted(config.accept_forgetting);
            let options = match config.audit {
                Some(audit) => options.with_audit(audit),
                None => options,
            };
            let store = SqliteStore::open_with(path, options).await;
            Once::builder(store.map_err(|error| refused_by_sqlite(&error))?)
        }
        StoreUrl::Postgres(url) => {
            let options = PostgresOptions::new();
            let options = match config.audit {
                Some(audit) => options.with_audit(audit),
                None => options,
            };
            let postgres = PostgresStore::open_with(url.reveal(), options).await;
            let postgres = postgres.map_err(|error| refused(&error))?;
            for warning in postgres.warnings() {
                warn!("{warning}");
                about.warnings.push(warning.to_string());
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
            warn!("{promise}");
            about.is_best_effort = !promise.is_durable();
            about.warnings.extend(about.is_best_effort.then(|| promise.to_string()));
            Once::builder(redis)
        }
        #[cfg(feature = "dynamodb")]
        StoreUrl::DynamoDb(address) => {
            check_leases(config)?;
            let store = DynamoStore::open(address).await.map_err(|error| refused(&error))?;
            for warning in store.warnings() {
                warn!("{warning}");
                about.warnings.push(warning.clone());
            }
            Once::builder(match config.audit {
                Some(audit) => store.with_audit(audit).map_err(|error| refused(&error))?,
                None => store,
            })
        }
    };
    Ok((builder, about))
}

/// Clocks of nodes on DynamoDB differ by a second: a lease must be far longer than that.
#[cfg(feature = "dynamodb")]
pub(super) fn check_leases(config: &Config) -> Result<(), StartError> {
    let StoreUrl::DynamoDb(_) = config.store else {
        return Ok(());
    };
    let routes = config.routes.iter().chain([&config.fallback]);
    let shortest = routes.map(|route| route.policy.lease()).min();
    match shortest.filter(|lease| *lease < DYNAMODB_LEASE_MIN) {
        Some(lease) => Err(StartError::Store(format!(
            "a lease of {lease:?} is too short for DynamoDB, whose time is told in whole seconds: make it at least {DYNAMODB_LEASE_MIN:?}"
        ))),
        None => Ok(()),
    }
}

/// The shortest lease on DynamoDB: a renewal is due every third of it, and must not be late by a second.
#[cfg(feature = "dynamodb")]
const DYNAMODB_LEASE_MIN: std::time::Duration = std::time::Duration::from_secs(5);

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
    let is_lossy = !promise.is_durable() && !config.accept_loss;
    refuse_payments(config, is_lossy, &promise.to_string())
}

/// The same, of a store that is open. Whoever serves from memory has accepted the loss of everything.
pub(super) fn check_payments(config: &Config, about: &About) -> Result<(), StartError> {
    let is_redis = matches!(config.store, StoreUrl::Redis(_));
    let is_lossy = is_redis && about.is_best_effort && !config.accept_loss;
    refuse_payments(config, is_lossy, "it was best effort when it was opened")
}

fn refuse_payments(config: &Config, is_lossy: bool, promise: &str) -> Result<(), StartError> {
    let payments = config.routes.iter().find(|route| route.is_payments);
    match payments {
        Some(route) if is_lossy => {
            Err(StartError::Loss { route: route.matching.to_string(), promise: promise.to_owned() })
        }
        _ => Ok(()),
    }
}
