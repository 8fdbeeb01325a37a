//! Where the outbox is.

use std::error::Error;

use onlyonce::outbox::{OutboxError, Parked};

use crate::commands::access::Failed;
use crate::commands::demand_file;
use crate::config::{StoreFlag, StoreUrl};

/// Which database holds the messages.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlaceFlags {
    /// The database with the messages: postgres://…, sqlite:FILE or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    store: StoreFlag,
}

impl PlaceFlags {
    pub(super) async fn open(&self) -> Result<Parked, Failed> {
        let url = self.store.url().map_err(|error| Failed::usage(&format!("--store: {error}")))?;
        match url {
            StoreUrl::Postgres(url) => {
                Parked::open(url.reveal()).await.map_err(|error| trouble(&error))
            }
            StoreUrl::Sqlite(file) => {
                demand_file(&file).map_err(|error| Failed::trouble(&error))?;
                Parked::open_sqlite(&file).await.map_err(|error| trouble(&error))
            }
            _ => Err(Failed::usage(&"--store: only postgres://… and sqlite:FILE have an outbox")),
        }
    }
}

/// The database did not answer.
pub(super) fn silent(error: OutboxError) -> Failed {
    trouble(&error)
}

/// An error with its causes.
fn trouble(error: &(dyn Error + 'static)) -> Failed {
    let causes = std::iter::successors(Some(error), |error| Error::source(*error));
    let told: Vec<_> = causes.map(ToString::to_string).collect();
    Failed::trouble(&crate::words::plain(&told.join(": ")))
}
