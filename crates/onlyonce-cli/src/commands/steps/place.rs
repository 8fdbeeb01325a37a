//! The database of the program that does the steps.

use std::path::Path;
use std::time::Duration;

use onlyonce::steps::{Operators, StepsFilter, StoredPoint, StoredSteps};

use crate::commands::access::Failed;
use crate::commands::{demand_file, doctor};
use crate::config::{StoreFlag, StoreUrl};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct PlaceFlags {
    /// The database: postgres://…, sqlite:FILE or env:NAME
    #[arg(long, value_name = "STORE", value_parser = StoreFlag::parse)]
    store: StoreFlag,
}

impl PlaceFlags {
    pub(super) async fn open(&self) -> Result<Operators, Failed> {
        let url = self.store.url().map_err(|error| Failed::usage(&format!("--store: {error}")))?;
        match url {
            StoreUrl::Postgres(url) => {
                let opened = Operators::open(url.reveal()).await;
                opened.map_err(|error| Failed::trouble(&doctor::told(&error)))
            }
            StoreUrl::Sqlite(path) => in_file(&path),
            _ => Err(Failed::usage(&ELSEWHERE)),
        }
    }
}

fn in_file(path: &Path) -> Result<Operators, Failed> {
    demand_file(path).map_err(|error| Failed::trouble(&error))?;
    let open = || {
        let db = rusqlite::Connection::open(path)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        db.execute_batch("PRAGMA synchronous = EXTRA; PRAGMA foreign_keys = ON")?;
        Ok(db)
    };
    let opened = open().map_err(|error: rusqlite::Error| Failed::trouble(&error))?;
    Operators::in_file(opened).map_err(|error| trouble(&error))
}

/// The one operation that is named by its key or its id.
pub(super) async fn named(
    operators: &Operators,
    name: &str,
) -> Result<(StoredSteps, Vec<StoredPoint>), Failed> {
    let by_key = StepsFilter { key: Some(name), ..StepsFilter::default() };
    let found = operators.list(by_key, None).await.map_err(|error| trouble(&error))?;
    let id = match &found[..] {
        [] => name,
        [one] => &one.id,
        several => {
            let message = format!("{} operations have this key; name one by its id", several.len());
            return Err(Failed::bad_news(&message));
        }
    };
    let shown = operators.show(id).await.map_err(|error| trouble(&error))?;
    shown.ok_or_else(|| Failed::bad_news(&"no operation has this key or id"))
}

pub(super) fn trouble(error: &(dyn std::error::Error + 'static)) -> Failed {
    Failed::trouble(&doctor::told(error))
}

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const ELSEWHERE: &str =
    "operations of several steps are in the program's own database: postgres://… or sqlite:FILE";
