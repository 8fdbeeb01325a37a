//! `onlyonce keys show`.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::Value;

use super::Format;
use super::list::print;
use super::name::{Name, identified};
use crate::commands::access::{AccessFlags, Failed};
use crate::words::plain;

/// Show one operation: first what became of it.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// The key, or the 32 digits of the id
    #[arg(value_name = "KEY-OR-ID", required_unless_present_any = ["id", "key"], conflicts_with_all = ["id", "key"])]
    name: Option<String>,
    /// The operation with this id, whatever keys there are
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    id: Option<String>,
    /// The operation with this key, whatever ids there are
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    access: AccessFlags,
}

impl Show {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let name = Name::of(self.name.as_deref(), self.id.as_deref(), self.key.as_deref());
        let name = name.ok_or_else(|| Failed::usage(&"name an operation: its key or its id"))?;
        let access = self.access.open().await?;
        let id = identified(&access, name).await?;
        let operation = access.get(&format!("operations/{id}")).await?;
        match self.format {
            Format::Json => print(&format!("{operation}\n")),
            Format::Text => print(&told(&operation)),
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
