//! `onlyonce outbox status`.

use std::process::ExitCode;

use onlyonce::outbox::TopicStatus;
use serde_json::{Value, json};

use super::place::{PlaceFlags, silent};
use super::{Format, table};
use crate::commands::access::{Failed, print};
use crate::words::span;

/// Tell what waits and what is parked, by topic.
#[derive(Debug, clap::Args)]
pub(super) struct Status {
    /// Only of this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    place: PlaceFlags,
}

impl Status {
    pub(super) async fn run(self) -> Result<ExitCode, Failed> {
        let mut topics = self.place.open().await?.status().await.map_err(silent)?.topics;
        topics.retain(|status| self.topic.as_ref().is_none_or(|topic| *topic == status.topic));
        let printed = match self.format {
            Format::Json => format!("{}\n", as_json(&topics)),
            Format::Text => as_table(&topics),
        };
        print(&printed)?;
        let has_parked = topics.iter().any(|status| status.parked > 0);
        Ok(if has_parked { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

fn as_json(topics: &[TopicStatus]) -> Value {
    let of_topic = |status: &TopicStatus| {
        json!({
            "topic": status.topic,
            "waiting": status.waiting,
            "oldest_seconds": status.oldest_age.map(|age| age.as_secs_f64()),
            "parked": status.parked,
        })
    };
    let oldest = topics.iter().filter_map(|status| status.oldest_age).max();
    json!({
        "waiting": topics.iter().map(|status| status.waiting).sum::<u64>(),
        "oldest_seconds": oldest.map(|age| age.as_secs_f64()),
        "parked": topics.iter().map(|status| status.parked).sum::<u64>(),
        "topics": topics.iter().map(of_topic).collect::<Vec<_>>(),
    })
}

fn as_table(topics: &[TopicStatus]) -> String {
    let row = |status: &TopicStatus| {
        let age_ms = status.oldest_age.map(onlyonce::clock::as_ms);
        [
            status.topic.clone(),
            status.waiting.to_string(),
            age_ms.map_or_else(|| "-".to_owned(), span),
            status.parked.to_string(),
        ]
    };
    table::of(["TOPIC", "WAITING", "OLDEST", "PARKED"], topics.iter().map(row).collect())
}
