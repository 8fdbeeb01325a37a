//! Where the trail is read: in a store, or through the admin listener of a running gateway.

use std::path::PathBuf;

use onlyonce::clock::StoreTime;
use onlyonce::scope::OperationId;
use onlyonce::store::audit::{EntryCursor, Head};
use serde_json::Value;

use super::gateway::GatewayTrail;
use super::store::StoreTrail;
use crate::commands::access::{Failed, TrustFlags};
use crate::config::StoreFlag;

/// Where the trail is.
#[derive(Debug, clap::Args)]
pub(super) struct SourceFlags {
    /// The admin listener of a running gateway that keeps the trail
    #[arg(long, value_name = "URL", global = true)]
    admin: Option<String>,
    /// The token of the admin listener; else the variable ONLYONCE_ADMIN_TOKEN is read
    #[arg(long, value_name = "TOKEN", global = true)]
    token: Option<String>,
    #[command(flatten)]
    trust: TrustFlags,
    /// The store that has the trail instead: sqlite:FILE, postgres://… or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse, global = true)]
    store: Option<StoreFlag>,
    /// The configuration that names the store, and the secret that a key is looked up with
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
}

impl SourceFlags {
    /// The flags may stand before and after a subcommand, where clap does not notice that two exclude each other.
    pub(super) async fn open(&self) -> Result<Source, Failed> {
        let names_a_store = self.store.is_some() || self.config.is_some();
        match &self.admin {
            Some(_) if names_a_store => Err(Failed::usage(&TWO_SOURCES)),
            Some(admin) => {
                let trail =
                    GatewayTrail::open(admin, self.token.clone(), self.trust.clone()).await?;
                Ok(Source::Gateway(trail))
            }
            None if self.token.is_some() || self.trust.is_given() => {
                Err(Failed::usage(&TOKEN_ALONE))
            }
            None if names_a_store => {
                let trail = StoreTrail::open(self.store.as_ref(), self.config.as_deref()).await?;
                Ok(Source::Store(Box::new(trail)))
            }
            None => Err(Failed::usage(&NO_SOURCE)),
        }
    }
}

/// Both are asked the same questions, and tell entries as the admin API does.
pub(super) enum Source {
    Gateway(GatewayTrail),
    Store(Box<StoreTrail>),
}

impl Source {
    pub(super) async fn page(&self, query: &Query<'_>) -> Result<Page, Failed> {
        match self {
            Self::Gateway(gateway) => gateway.page(query).await,
            Self::Store(store) => store.page(query).await,
        }
    }

    pub(super) async fn heads(&self) -> Result<Vec<Head>, Failed> {
        match self {
            Self::Gateway(gateway) => gateway.heads().await,
            Self::Store(store) => store.heads().await,
        }
    }

    /// Whether the whole trail fits together, and fits the heads that were kept.
    pub(super) async fn verify(&self, kept: &[Head]) -> Result<Value, Failed> {
        match self {
            Self::Gateway(gateway) => gateway.verify(kept).await,
            Self::Store(store) => store.verify(kept).await,
        }
    }

    /// A gateway itself says whether it keeps a trail; of a store nothing but its chains tells.
    pub(super) async fn demand_trail(&self) -> Result<(), Failed> {
        match self {
            Self::Gateway(_) => Ok(()),
            Self::Store(store) => store.demand_trail().await,
        }
    }

    /// A gateway has the secret of its keys; whoever reads a store may not have it.
    pub(super) async fn demand_secret(&self) -> Result<(), Failed> {
        match self {
            Self::Gateway(_) => Ok(()),
            Self::Store(store) => store.demand_secret().await,
        }
    }
}

/// Which entries to read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Query<'a> {
    pub(super) id: Option<OperationId>,
    pub(super) key: Option<&'a str>,
    pub(super) since: Option<StoreTime>,
    pub(super) until: Option<StoreTime>,
    /// From where the last page ended.
    pub(super) after: Option<EntryCursor>,
    /// At most so many; the admin API gives no more than 200.
    pub(super) limit: usize,
}

/// Entries by time, oldest first.
pub(super) struct Page {
    pub(super) entries: Vec<Value>,
    /// Where the next page starts; `None` after the last.
    pub(super) next: Option<EntryCursor>,
}

const TWO_SOURCES: &str =
    "--admin asks a running gateway, which knows its store: leave out --store and --config";
const TOKEN_ALONE: &str = "--token is for the admin listener of a running gateway: pass --admin";
const NO_SOURCE: &str =
    "there is no trail to read: pass --admin for a running gateway, or --store or --config";
