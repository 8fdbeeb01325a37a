//! `onlyonce keys list`.

use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::Value;

use super::filter::FilterFlags;
use super::table;
use crate::commands::access::{self, Access, AccessFlags, Failed};

/// List operations, in no particular order.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// At most so many (text and JSON)
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
    /// How they are printed
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    format: ListFormat,
    #[command(flatten)]
    access: AccessFlags,
    // Last: what follows in the help would stand under the heading of the filters.
    #[command(flatten)]
    filter: FilterFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ListFormat {
    /// A table
    Text,
    /// A list of objects
    Json,
    /// All that match, up to 100,000; safe to open in a spreadsheet
    Csv,
}

impl List {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let access = self.access.open().await?;
        if self.filter.key.is_some() {
            access.demand_keys()?;
        }
        if self.format == ListFormat::Csv {
            let text =
                access.text(&format!("operations.csv?{}", self.filter.query().finish())).await?;
            return print(&String::from_utf8_lossy(&text));
        }
        let (operations, has_more) = listed(&access, &self.filter, self.limit).await?;
        match self.format {
            ListFormat::Json => print(&(Value::from(operations).to_string() + "\n"))?,
            _ => print(&table::of(&operations))?,
        };
        if has_more {
            eprintln!("onlyonce: there are more; raise --limit, or narrow the filter");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Up to `limit` operations, and whether there are more.
pub(super) async fn listed(
    access: &Access,
    filter: &FilterFlags,
    limit: usize,
) -> Result<(Vec<Value>, bool), Failed> {
    let (mut operations, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut query = filter.query();
        query.append_pair(
            "limit",
            &limit.saturating_sub(operations.len()).clamp(1, PAGE).to_string(),
        );
        query.extend_pairs(after.as_ref().map(|after| ("after", after)));
        let page = access.get(&format!("operations?{}", query.finish())).await?;
        operations.extend(page["operations"].as_array().into_iter().flatten().cloned());
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() || operations.len() >= limit {
            let has_more = after.is_some() || operations.len() > limit;
            operations.truncate(limit);
            return Ok((operations, has_more));
        }
    }
}

/// Prints what was found.
pub(super) fn print(text: &str) -> Result<ExitCode, Failed> {
    access::print(text).map(|_| ExitCode::SUCCESS)
}

const PAGE: usize = 200;
