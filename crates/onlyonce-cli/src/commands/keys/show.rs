//! `onlyonce keys show`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::Value;

use super::list::print;
use super::{Format, table};
use crate::commands::access::{Access, AccessFlags, Failed};
use crate::words::plain;

/// Show one operation: first what became of it.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The key, or the 32 digits of the id
    #[arg(value_name = "KEY-OR-ID")]
    name: String,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    access: AccessFlags,
}

impl Show {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let access = self.access.open().await?;
        let id = identified(&access, &self.name).await?;
        let operation = access.get(&format!("operations/{id}")).await?;
        match self.format {
            Format::Json => print(format!("{operation}\n").as_bytes()),
            Format::Text => print(told(&operation).as_bytes()),
        }
    }
}

/// The id of the one operation that is named by its id or its key.
pub(super) async fn identified(access: &Access, name: &str) -> Result<String, Failed> {
    if name.parse::<onlyonce::scope::OperationId>().is_ok() {
        match access.get(&format!("operations/{name}")).await {
            // A key may look like an id.
            Err(failed) if failed.code == 1 => {}
            found => return found.map(|_| name.to_ascii_lowercase()),
        }
    }
    access.demand_keys()?;
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("key", name);
    let page = access.get(&format!("operations?{}", query.finish())).await?;
    let found = page["operations"].as_array().map_or(&[][..], Vec::as_slice);
    match found {
        [] if access.met_sealed() => Err(Failed::usage(&SEALED)),
        [] => Err(Failed::bad_news(&NOTHING)),
        [one] => Ok(one["id"].as_str().unwrap_or_default().to_owned()),
        several => {
            print(table::of(several).as_bytes())?;
            let message = format!("{} operations have this key; name one by its id", several.len());
            Err(Failed::bad_news(&message))
        }
    }
}

fn told(operation: &Value) -> String {
    let text = |name: &str| operation[name].as_str().map(plain);
    let mut told = format!("{}\n\n", text("verdict").unwrap_or_default());
    for (word, name) in FACTS {
        let value = match &operation[name] {
            Value::Null => continue,
            Value::String(text) => plain(text),
            other => other.to_string(),
        };
        // A string takes everything that is written to it.
        let _ = writeln!(told, "{word:<15} {value}");
    }
    for (number, check) in operation["checks"].as_array().into_iter().flatten().enumerate() {
        let head = if number == 0 { "\nCheck before you decide\n" } else { "" };
        let _ =
            writeln!(told, "{head}  {}. {}", number + 1, plain(check.as_str().unwrap_or_default()));
    }
    told += "\nActions\n";
    for name in ["settle", "release", "forget", "erase"] {
        let action = &operation["actions"][name];
        let said = action["why_not"].as_str().map_or_else(
            || plain(action["promise"].as_str().unwrap_or_default()),
            |why| format!("not now: {}", plain(why)),
        );
        let _ = writeln!(told, "  {name:<8} {said}");
    }
    told += "\nEvents\n";
    for event in operation["events"].as_array().into_iter().flatten() {
        let _ = writeln!(told, "  {}", crate::commands::tail::line(event));
    }
    told
}

const FACTS: [(&str, &str); 11] = [
    ("Key", "key"),
    ("Id", "id"),
    ("State", "state"),
    ("Route", "route"),
    ("Caller", "principal"),
    ("Attempt", "attempt"),
    ("Revision", "revision"),
    ("First claimed", "first_claimed_at"),
    ("Unknown since", "unknown_since"),
    ("Kept until", "expires_at"),
    ("Answer", "status"),
];
const SEALED: &str = "the texts of keys are sealed in this store, so that none is found by its text: pass --config with [seal], or use the id, or --admin";
const NOTHING: &str = "no operation has this key or id; it may have expired or been forgotten";
