//! `onlyonce keys settle`, `release`, `forget` and `erase`: one operation, or all that match.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::Format;
use super::filter::FilterFlags;
use super::list::print;
use super::name::{Name, identified};
use super::table;
use crate::commands::access::{AccessFlags, Failed};

/// Write the outcome of an unknown operation.
#[derive(Debug, clap::Args)]
pub(super) struct Settle {
    /// The status of the answer that retries get
    #[arg(
        long,
        value_name = "STATUS",
        conflicts_with = "failed",
        required_unless_present = "failed"
    )]
    status: Option<u16>,
    /// A header of that answer; may be repeated
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "failed")]
    header: Vec<String>,
    /// The file with the body of that answer, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "failed")]
    body: Option<PathBuf>,
    /// Settle it as failed: every retry gets 502 idempotency_operation_failed, and is told to use a new key
    #[arg(long)]
    failed: bool,
    #[command(flatten)]
    change: Change,
}

/// Give an unknown operation back.
#[derive(Debug, clap::Args)]
pub(super) struct Release {
    /// Release even if the first attempt could still reach the upstream. Use it only if you are sure that it cannot
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    change: Change,
}

/// What every change needs.
#[derive(Debug, clap::Args)]
pub(super) struct Change {
    /// The key, or the 32 digits of the id
    #[arg(value_name = "KEY-OR-ID", required_unless_present_any = ["all", "id", "key"], conflicts_with_all = ["all", "id", "key"])]
    name: Option<String>,
    /// The operation with this id, whatever keys there are
    #[arg(long, value_name = "ID", conflicts_with_all = ["all", "key"])]
    id: Option<String>,
    /// Change every operation that matches the filters (give at least one filter)
    #[arg(long)]
    all: bool,
    /// Only if the operation is still as `keys show` told it: its revision
    #[arg(long, value_name = "REVISION", conflicts_with = "all")]
    revision: Option<String>,
    /// Only if the same operations match as in an earlier --dry-run: the selection that it told
    #[arg(long, value_name = "SELECTION", requires = "all")]
    selection: Option<String>,
    /// Why it is changed; for the log, and for the audit trail if one is kept
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Who changes it; the user of this machine unless said
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Tell what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change more than 20 without asking back
    #[arg(long, requires = "all")]
    yes: bool,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    access: AccessFlags,
    // Last: what follows in the help would stand under the heading of the filters.
    #[command(flatten)]
    filter: FilterFlags,
}

impl Settle {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let mut details = Map::new();
        if self.failed {
            details.insert("failed".to_owned(), true.into());
        }
        if let Some(status) = self.status {
            details.insert("status".to_owned(), status.into());
            details.insert("headers".to_owned(), headers(&self.header)?);
        }
        if let Some(file) = &self.body {
            details.insert("body".to_owned(), read(file)?.into());
        }
        self.change.make("settle", details).await
    }
}

impl Release {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let details = Map::from_iter([("force".to_owned(), self.force.into())]);
        self.change.make("release", details).await
    }
}

impl Change {
    /// An action that needs no more than that.
    pub(super) async fn run(self, action: &str) -> Result<ExitCode, Failed> {
        self.make(action, Map::new()).await
    }

    async fn make(self, action: &str, mut details: Map<String, Value>) -> Result<ExitCode, Failed> {
        let who = self.who.clone().unwrap_or_else(crate::commands::operating_user);
        details.insert("who".to_owned(), who.into());
        details.insert("reason".to_owned(), self.reason.as_str().into());
        if let Some(revision) = &self.revision {
            details.insert("revision".to_owned(), revision.as_str().into());
        }
        match self.named() {
            Some(_) if self.filter.has_more_than_key() => {
                Err(Failed::usage(&"filters choose many: pass --all, or a key or id alone"))
            }
            Some(name) => self.one(name, action, details).await,
            None if self.filter.is_empty() => {
                Err(Failed::usage(&"--all needs a filter, such as --state unknown"))
            }
            None => self.many(action, details).await,
        }
    }

    /// The one operation that is meant; with `--all` there is none.
    fn named(&self) -> Option<Name<'_>> {
        let key = self.filter.key.as_deref().filter(|_| !self.all);
        Name::of(self.name.as_deref(), self.id.as_deref(), key)
    }

    async fn one(
        &self,
        name: Name<'_>,
        action: &str,
        mut details: Map<String, Value>,
    ) -> Result<ExitCode, Failed> {
        let access = self.access.open().await?;
        let id = identified(&access, name).await?;
        // A gateway that does not know this member refuses the request; left out, it would be a change.
        if self.dry_run {
            details.insert("dry_run".to_owned(), true.into());
        }
        let told = access.post(&format!("operations/{id}/{action}"), &details.into()).await?;
        if self.format == Format::Json {
            return print(&format!("{told}\n"));
        }
        let text = match self.dry_run {
            true => format!(
                "{action}: {id} would be changed\nto change exactly this state of it, pass --revision {}\n{}",
                crate::words::plain(told["revision"].as_str().unwrap_or_default()),
                table::of(&[told]),
            ),
            false => format!("{}: {id}\n", done(action)),
        };
        print(&text)
    }

    async fn many(&self, action: &str, details: Map<String, Value>) -> Result<ExitCode, Failed> {
        let access = self.access.open().await?;
        if self.filter.key.is_some() {
            access.demand_keys()?;
        }
        let mut request = details;
        request.insert("filter".to_owned(), self.filter.object());
        request.insert("action".to_owned(), action.into());
        request.insert("dry_run".to_owned(), true.into());
        let dry = access.post("operations/bulk", &Value::Object(request.clone())).await?;
        let would = dry["changed"].as_u64().unwrap_or_default();
        if self.dry_run {
            return self.tell(action, &dry);
        }
        if would > ASKED_ABOVE && !self.yes {
            self.tell(action, &dry)?;
            return Err(Failed::usage(&format!(
                "{would} operations would be changed; pass --yes if that is meant"
            )));
        }
        let selection =
            self.selection.as_deref().map_or_else(|| dry["selection"].clone(), Value::from);
        request.insert("dry_run".to_owned(), false.into());
        request.insert("selection".to_owned(), selection);
        self.tell(action, &access.post("operations/bulk", &request.into()).await?)
    }

    fn tell(&self, action: &str, told: &Value) -> Result<ExitCode, Failed> {
        if self.format == Format::Json {
            return print(&format!("{told}\n"));
        }
        let number = |name: &str| told[name].as_u64().unwrap_or_default();
        let is_dry = told["dry_run"] == true;
        let (word, verb) =
            if is_dry { (action, "would be changed") } else { (done(action), "changed") };
        let mut text = format!("{word}: {} of {} {verb}", number("changed"), number("matched"));
        for refusal in told["refusals"].as_array().into_iter().flatten() {
            let part = |name: &str| crate::words::plain(refusal[name].as_str().unwrap_or_default());
            text += &format!("\n  refused {}: {}", part("id"), part("why"));
        }
        if told["has_more"] == true {
            text += "\nmore operations match than one call changes: run it again";
        }
        text.push('\n');
        if is_dry {
            let selection = told["selection"].as_str().unwrap_or_default();
            text += &format!("to change exactly these, pass --selection {selection}\n");
        }
        if let Some(sample) =
            told["sample"].as_array().filter(|sample| is_dry && !sample.is_empty())
        {
            text += &table::of(sample);
        }
        print(&text)
    }
}

fn done(action: &str) -> &'static str {
    match action {
        "settle" => "settled",
        "release" => "released",
        "erase" => "erased",
        _ => "forgotten",
    }
}

fn headers(given: &[String]) -> Result<Value, Failed> {
    let mut headers = Map::new();
    for header in given {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| Failed::usage(&format!("--header: {header:?} is not NAME: VALUE")))?;
        let name = name.trim().to_ascii_lowercase();
        if headers.insert(name.clone(), json!(value.trim())).is_some() {
            return Err(Failed::usage(&format!("--header: {name} is given twice")));
        }
    }
    Ok(headers.into())
}

/// The text of a file, or of standard input.
pub(in crate::commands) fn read(file: &Path) -> Result<String, Failed> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failed::usage(&format!("--body: {}: {error}", file.display()))
    };
    let mut bytes = Vec::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes),
        false => {
            let opened = std::fs::File::open(file).map_err(|error| wrong(&error))?;
            opened.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes)
        }
    };
    read.map_err(|error| wrong(&error))?;
    match bytes.len() as u64 > BODY_BYTES_MAX {
        true => Err(wrong(&"it is longer than 1 MiB")),
        false => String::from_utf8(bytes).map_err(|_| wrong(&"it is not UTF-8 text")),
    }
}

/// More than this many are changed only with `--yes`.
const ASKED_ABOVE: u64 = 20;
const BODY_BYTES_MAX: u64 = 1 << 20;
