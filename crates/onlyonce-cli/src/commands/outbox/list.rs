//! `onlyonce outbox list`.

use std::process::ExitCode;

use onlyonce::outbox::{Parked, ParkedFilter, ParkedMessage};
use serde_json::Value;

use super::Format;
use super::message::{as_json, as_table};
use super::place::{PlaceFlags, silent};
use crate::commands::access::{Failed, print};

/// List parked messages.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Only of this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// At most so many
    #[arg(long, value_name = "NUMBER", default_value_t = 50)]
    limit: usize,
    /// How they are printed; JSON has the payloads, too
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    place: PlaceFlags,
}

impl List {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let parked = self.place.open().await?;
        let (mut found, mut after, mut has_more) = (Vec::new(), 0, false);
        while let Some(page) = page(&parked, self.topic.as_deref(), &mut after).await? {
            found.extend(page);
            has_more = found.len() > self.limit;
            if has_more {
                found.truncate(self.limit);
                break;
            }
        }
        match self.format {
            Format::Json => {
                let mut all = Vec::with_capacity(found.len());
                for message in &found {
                    all.extend(whole(&parked, &message.id).await?);
                }
                print(&format!("{}\n", Value::from(all)))?;
            }
            Format::Text => {
                print(&as_table(&found))?;
            }
        }
        if has_more {
            eprintln!("onlyonce: there are more; raise --limit, or give a --topic");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A parked message with its payload; `None` if it is not parked any more. Payloads are read one by one: a page of them may be
/// too much for one answer of the database.
pub(super) async fn whole(parked: &Parked, id: &str) -> Result<Option<Value>, Failed> {
    let found = parked.find(id).await.map_err(silent)?;
    Ok(found.map(|(message, payload)| as_json(&message, &payload)))
}

/// The next parked messages; `None` after the last.
pub(super) async fn page(
    parked: &Parked,
    topic: Option<&str>,
    after: &mut i64,
) -> Result<Option<Vec<ParkedMessage>>, Failed> {
    let filter = ParkedFilter { topic, key: None };
    let page = parked.list(filter, *after).await.map_err(silent)?;
    let Some(last) = page.last() else { return Ok(None) };
    *after = last.position;
    Ok(Some(page))
}
