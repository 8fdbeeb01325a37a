//! Where records are moved to.

use onlyonce::clock::StoreTime;
use onlyonce::record::Record;
use onlyonce::scope::OperationId;
use onlyonce::store::Fault;
#[cfg(feature = "dynamodb")]
use onlyonce::store::dynamodb;
use onlyonce::store::postgres::{Import, PostgresStore};

use super::refused;
use crate::config::{ServerUrl, StoreUrl};

/// A store of many nodes.
#[derive(Clone, Debug)]
pub(super) enum Destination {
    Postgres(ServerUrl),
    #[cfg(feature = "dynamodb")]
    DynamoDb(String),
}

impl Destination {
    /// `None` if nothing can be moved there.
    pub(super) fn of(store: StoreUrl) -> Option<Self> {
        match store {
            StoreUrl::Postgres(url) => Some(Self::Postgres(url)),
            #[cfg(feature = "dynamodb")]
            StoreUrl::DynamoDb(address) => Some(Self::DynamoDb(address)),
            _ => None,
        }
    }

    /// Makes what a store needs there, and says so.
    pub(super) async fn make(&self) -> Result<String, String> {
        let version = env!("CARGO_PKG_VERSION");
        match self {
            Self::Postgres(url) => {
                let opened = PostgresStore::open(url.reveal()).await;
                opened.map_err(|error| refused(&self.to_string(), &error))?.close().await;
                Ok(format!("{self} has the tables and functions of onlyonce {version}"))
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(address) => {
                let made = dynamodb::make_table(address, None).await;
                let made = made.map_err(|error| refused(address, &error))?;
                let opened = dynamodb::DynamoStore::open(address).await;
                opened.map_err(|error| refused(address, &error))?.close().await;
                let told = if made { "was made" } else { "was there" };
                Ok(format!("{self}: the table {told}, and onlyonce {version} can use it"))
            }
        }
    }

    /// Makes it another store than the one that it is a copy of, and says so.
    pub(super) async fn new_identity(&self) -> Result<String, String> {
        match self {
            Self::Postgres(url) => {
                let made = PostgresStore::new_identity(url.reveal()).await;
                made.map_err(|error| refused(&self.to_string(), &error))?;
                Ok(format!(
                    "{self} has an identity of its own: a filter in front of another copy has nothing for it"
                ))
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(address) => Err(format!(
                "{address}: a table of DynamoDB has no filter in front of it, and needs no identity"
            )),
        }
    }

    pub(super) async fn begin(&self, from: &str) -> Result<Filling, String> {
        let failed = |error: &dyn std::error::Error| refused(&self.to_string(), error);
        match self {
            Self::Postgres(url) => {
                let import = Import::begin(url.reveal(), from).await;
                Ok(Filling::Postgres(Box::new(import.map_err(|error| failed(&error))?)))
            }
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(address) => {
                let import = dynamodb::Import::begin(address, from).await;
                Ok(Filling::DynamoDb(import.map_err(|error| failed(&error))?))
            }
        }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Postgres(url) => url.fmt(f),
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(address) => f.write_str(address),
        }
    }
}

/// A store that is being filled.
#[derive(Debug)]
pub(super) enum Filling {
    Postgres(Box<Import>),
    #[cfg(feature = "dynamodb")]
    DynamoDb(dynamodb::Import),
}

impl Filling {
    pub(super) async fn now(&self) -> Result<StoreTime, Fault> {
        match self {
            Self::Postgres(import) => import.now().await,
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(import) => import.now().await,
        }
    }

    pub(super) async fn import(&self, records: &[(OperationId, Record)]) -> Result<(), Fault> {
        match self {
            Self::Postgres(import) => import.import(records).await,
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(import) => import.import(records).await,
        }
    }

    pub(super) async fn import_check_value(
        &self,
        name: &str,
        value: Option<&str>,
    ) -> Result<(), Fault> {
        match self {
            Self::Postgres(import) => import.import_check_value(name, value).await,
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(import) => import.import_check_value(name, value).await,
        }
    }

    pub(super) async fn finish(&self) -> Result<(), Fault> {
        match self {
            Self::Postgres(import) => import.finish().await,
            #[cfg(feature = "dynamodb")]
            Self::DynamoDb(import) => import.finish().await,
        }
    }
}
