//! The trail of a running gateway, through its admin listener.

use std::time::Duration;

use onlyonce::store::audit::{Head, Link};
use serde_json::{Value, json};

use super::source::{Page, Query};
use crate::commands::access::{Access, AccessFlags, Failed, TrustFlags};

/// What the admin API tells of the trail.
pub(super) struct GatewayTrail {
    access: Access,
}

impl GatewayTrail {
    pub(super) async fn open(
        admin: &str,
        token: Option<String>,
        trust: TrustFlags,
    ) -> Result<Self, Failed> {
        let access = AccessFlags::of_gateway(admin, token, trust).open().await?;
        Ok(Self { access })
    }

    pub(super) async fn page(&self, query: &Query<'_>) -> Result<Page, Failed> {
        let mut page = self.get(&format!("audit?{}", written(query))).await?;
        let next = page["next"].as_str().map(str::parse).transpose();
        let (entries, next) = (list(&mut page, "entries")?, next.map_err(|_| no_trail_told())?);
        Ok(Page { entries, next })
    }

    pub(super) async fn heads(&self) -> Result<Vec<Head>, Failed> {
        let heads = list(&mut self.get("audit/heads").await?, "heads")?;
        heads.iter().map(|head| read_head(head).ok_or_else(no_trail_told)).collect()
    }

    pub(super) async fn verify(&self, kept: &[Head]) -> Result<Value, Failed> {
        let kept: Vec<_> = kept.iter().map(ToString::to_string).collect();
        let access = self.access.clone().with_answer_wait(VERIFY_WAIT);
        let told = access.post("audit/verify", &json!({ "heads": kept })).await;
        let told = told.map_err(no_news)?;
        let is_told =
            told["ok"].is_boolean() && told["entries"].is_u64() && told["faults"].is_array();
        if is_told { Ok(told) } else { Err(no_trail_told()) }
    }

    async fn get(&self, path: &str) -> Result<Value, Failed> {
        self.access.get(path).await.map_err(no_news)
    }
}

/// The query of `GET audit`. Times are absolute, so that every page is of the same span.
fn written(query: &Query<'_>) -> String {
    let mut written = form_urlencoded::Serializer::new(String::new());
    written.append_pair("limit", &query.limit.to_string());
    written.extend_pairs(query.id.map(|id| ("id", id.to_string())));
    written.extend_pairs(query.key.map(|key| ("key", key)));
    written.extend_pairs(query.since.map(|since| ("since", since.rfc3339())));
    written.extend_pairs(query.until.map(|until| ("until", until.rfc3339())));
    written.extend_pairs(query.after.map(|after| ("after", after.to_string())));
    written.finish()
}

fn list(answer: &mut Value, name: &str) -> Result<Vec<Value>, Failed> {
    match answer.get_mut(name).map(Value::take) {
        Some(Value::Array(values)) => Ok(values),
        _ => Err(no_trail_told()),
    }
}

/// The hash of the checkpoint is not told: nobody compares it.
fn read_head(head: &Value) -> Option<Head> {
    let (writer, hash) = (head["writer"].as_str()?, head["hash"].as_str()?);
    let (sequence, from) = (head["sequence"].as_u64()?, head["from"].as_u64()?);
    let read: Head = format!("{writer} {sequence} {hash}").parse().ok()?;
    Some(Head { from: Link { sequence: from, ..Link::default() }, ..read })
}

/// Exit code 1 says that the trail was changed. An address that is not there says nothing of the trail.
fn no_news(mut failed: Failed) -> Failed {
    if failed.code == 1 {
        failed.code = 3;
    }
    failed
}

fn no_trail_told() -> Failed {
    Failed::trouble(
        &"the answer does not tell of a trail; is --admin the address of the admin listener?",
    )
}

/// The gateway reads the whole trail before it answers.
const VERIFY_WAIT: Duration = Duration::from_secs(60 * 60);
