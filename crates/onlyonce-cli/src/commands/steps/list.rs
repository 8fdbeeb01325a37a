//! `onlyonce steps list`.

use std::process::ExitCode;

use onlyonce::clock::{Clock, SystemClock};
use onlyonce::steps::{StepsFilter, StepsState, StoredSteps};
use serde_json::Value;

use super::place::{PlaceFlags, trouble};
use super::{Format, object, state, state_word};
use crate::commands::access::{Failed, print};
use crate::words::{plain, span};

/// List operations, those first that have not changed for longest.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// In this state: running, waiting, stuck, unknown or completed; all that are not completed unless said
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<StepsState>,
    /// Of the program with this name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// With this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
    /// How they are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    place: PlaceFlags,
}

impl List {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let operators = self.place.open().await?;
        let filter = StepsFilter {
            state: self.state,
            name: self.name.as_deref(),
            key: self.key.as_deref(),
            id: None,
        };
        let mut found: Vec<StoredSteps> = Vec::new();
        // One more than is shown tells that there are more.
        while found.len() <= self.limit {
            let page = operators.list(filter, found.last()).await;
            let page = page.map_err(|error| trouble(&error))?;
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        print(&match self.format {
            Format::Json => Value::from_iter(found.iter().map(object)).to_string() + "\n",
            Format::Text => table(&found),
        })?;
        if has_more {
            eprintln!("onlyonce: there are more; raise --limit, or narrow the filter");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Aligned columns, with a line of heads.
fn table(found: &[StoredSteps]) -> String {
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(found.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<_> = (0..HEADS.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn row(stored: &StoredSteps) -> [String; 7] {
    let age = span(SystemClock.wall().since_ms(stored.since));
    let point = stored.point.as_deref().map_or_else(|| "-".to_owned(), plain);
    let name = plain(&stored.name);
    let attempts = stored.attempts.to_string();
    [
        state_word(stored).to_owned(),
        age,
        attempts,
        name,
        point,
        plain(&stored.key),
        stored.id.clone(),
    ]
}

const HEADS: [&str; 7] = ["STATE", "SINCE", "ATTEMPTS", "NAME", "POINT", "KEY", "ID"];
