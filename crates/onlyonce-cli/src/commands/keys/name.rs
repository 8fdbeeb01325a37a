//! The one operation that a command is about, named by its id or its key.

use serde_json::Value;

use super::list::print;
use super::table;
use crate::commands::access::{Access, Failed};

/// How an operation was named. A caller chooses its key, and may choose the text of another operation's id.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    /// Whichever of the two exists.
    KeyOrId(&'a str),
    Id(&'a str),
    Key(&'a str),
}

impl<'a> Name<'a> {
    pub(super) fn of(
        either: Option<&'a str>,
        id: Option<&'a str>,
        key: Option<&'a str>,
    ) -> Option<Self> {
        either.map(Self::KeyOrId).or_else(|| id.map(Self::Id)).or_else(|| key.map(Self::Key))
    }
}

/// The id of the operation with this name. A name that could mean two operations is refused.
pub(super) async fn identified(access: &Access, name: Name<'_>) -> Result<String, Failed> {
    match name {
        Name::Id(text) if !is_id(text) => {
            Err(Failed::usage(&"--id: an id has 32 hexadecimal digits"))
        }
        Name::Id(text) => {
            with_id(access, text).await?.map(id_of).ok_or_else(|| Failed::bad_news(&NO_ID))
        }
        Name::Key(text) => {
            access.demand_keys()?;
            only(access, &with_key(access, text).await?)
        }
        Name::KeyOrId(text) => either(access, text).await,
    }
}

async fn either(access: &Access, text: &str) -> Result<String, Failed> {
    let of_id = match is_id(text) {
        true => with_id(access, text).await?,
        false => None,
    };
    let Some(of_id) = of_id else {
        access.demand_keys()?;
        return only(access, &with_key(access, text).await?);
    };
    // Where keys cannot be looked up, nobody can tell whether another operation has this text as its key.
    access.demand_keys().map_err(|_| Failed::usage(&SAY_ID))?;
    let mut found = with_key(access, text).await?;
    found.retain(|operation| operation["id"] != of_id["id"]);
    if found.is_empty() && access.met_sealed() {
        return Err(Failed::usage(&SAY_ID));
    }
    if found.is_empty() {
        return Ok(id_of(of_id));
    }
    found.insert(0, of_id);
    print(&table::of(&found))?;
    Err(Failed::usage(&BOTH))
}

fn is_id(text: &str) -> bool {
    text.parse::<onlyonce::scope::OperationId>().is_ok()
}

async fn with_id(access: &Access, id: &str) -> Result<Option<Value>, Failed> {
    match access.get(&format!("operations/{id}")).await {
        Ok(operation) => Ok(Some(operation)),
        Err(failed) if failed.code == 1 => Ok(None),
        Err(failed) => Err(failed),
    }
}

async fn with_key(access: &Access, key: &str) -> Result<Vec<Value>, Failed> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("key", key);
    let page = access.get(&format!("operations?{}", query.finish())).await?;
    Ok(page["operations"].as_array().cloned().unwrap_or_default())
}

fn only(access: &Access, found: &[Value]) -> Result<String, Failed> {
    match found {
        [] if access.met_sealed() => Err(Failed::usage(&SEALED)),
        [] => Err(Failed::bad_news(&NOTHING)),
        [one] => Ok(id_of(one.clone())),
        several => {
            print(&table::of(several))?;
            let message =
                format!("{} operations have this key; name one by its --id", several.len());
            Err(Failed::bad_news(&message))
        }
    }
}

fn id_of(operation: Value) -> String {
    operation["id"].as_str().unwrap_or_default().to_owned()
}

const BOTH: &str = "this is the id of the first of these operations and the key of the others: say which is meant, with --id or \
                    --key";
const SAY_ID: &str = "keys cannot be looked up here, so another operation may have this text as its key: pass --id if it is \
                      meant as an id, or --config with the `secret` and `[seal]` of the store";
const SEALED: &str = "the texts of keys are sealed in this store, so that none is found by its text: pass --config with \
                      [seal], or --id, or --admin";
const NO_ID: &str = "no operation has this id; it may have expired or been forgotten";
const NOTHING: &str = "no operation has this key or id; it may have expired or been forgotten";
