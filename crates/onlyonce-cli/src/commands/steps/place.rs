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

/// Which operation is meant.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct NameFlags {
    /// The key, or the id
    #[arg(value_name = "KEY-OR-ID")]
    name: Option<String>,
    /// The id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The key, although it may be the id of another operation
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl NameFlags {
    /// The one operation that is meant. A caller chooses its keys: one may be the text of somebody else's id.
    pub(super) async fn find(
        &self,
        operators: &Operators,
    ) -> Result<(StoredSteps, Vec<StoredPoint>), Failed> {
        let of_key = match self.key.as_ref().or(self.name.as_ref()) {
            Some(key) => with_key(operators, key).await?,
            None => None,
        };
        let of_id = match self.id.as_ref().or(self.name.as_ref()) {
            Some(id) => operators.show(id).await.map_err(|error| trouble(&error))?,
            None => None,
        };
        match (of_key, of_id) {
            (Some(key), Some((stored, _))) if key != stored.id => {
                let id = stored.id;
                Err(Failed::bad_news(&format!(
                    "it is the id of one operation, and the key of another, {key}: say --id {id} or --key {id}"
                )))
            }
            (_, Some(found)) => Ok(found),
            (Some(id), None) => by_id(operators, &id).await,
            (None, None) => Err(Failed::bad_news(&NONE)),
        }
    }
}

/// The id of the one operation with this key.
async fn with_key(operators: &Operators, key: &str) -> Result<Option<String>, Failed> {
    let by_key = StepsFilter { key: Some(key), ..StepsFilter::default() };
    let found = operators.list(by_key, None).await.map_err(|error| trouble(&error))?;
    match &found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.id.clone())),
        several => {
            let message =
                format!("{} operations have this key; name one with --id ID", several.len());
            Err(Failed::bad_news(&message))
        }
    }
}

pub(super) async fn by_id(
    operators: &Operators,
    id: &str,
) -> Result<(StoredSteps, Vec<StoredPoint>), Failed> {
    let shown = operators.show(id).await.map_err(|error| trouble(&error))?;
    shown.ok_or_else(|| Failed::bad_news(&NONE))
}

pub(super) fn trouble(error: &(dyn std::error::Error + 'static)) -> Failed {
    Failed::trouble(&doctor::told(error))
}

const NONE: &str = "no operation has this key or id";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const ELSEWHERE: &str =
    "operations of several steps are in the program's own database: postgres://… or sqlite:FILE";
