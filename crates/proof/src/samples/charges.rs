//! The work that the samples guard: a charge is one line of a file.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Reply, SampleError, Settings};
use crate::oracle::Oracle;

/// What a request wants.
pub(super) struct Order {
    marker: String,
    fail: String,
    slow: Option<Duration>,
    pub(super) body: Value,
}

impl Order {
    /// Reads a JSON object; `fail` of the query comes before that of the body.
    pub(super) fn read(body: &[u8], query: &str) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok().filter(Value::is_object)?;
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let in_query = query.split('&').find_map(|pair| pair.strip_prefix("fail="));
        let fail = in_query.map_or_else(|| text("fail"), str::to_owned);
        let slow_ms = body["slow_ms"].as_u64().map(|slow_ms| slow_ms.min(SLOW_MS_MAX));
        Some(Self { marker: text("marker"), fail, slow: slow_ms.map(Duration::from_millis), body })
    }
}

/// An exception of the handler.
#[derive(Debug, thiserror::Error)]
pub(super) enum Raised {
    #[error("the handler raised before its effect")]
    Before,
    #[error("the handler raised after its effect")]
    After,
    #[error("the effect could not be written")]
    Failed(#[from] std::io::Error),
}

/// The provider: executes, and counts what it has executed.
pub(super) struct Charges {
    oracle: Oracle,
    executions: PathBuf,
    work: Duration,
    raise_every: usize,
    executed: AtomicUsize,
}

impl Charges {
    pub(super) fn open(settings: &Settings) -> Result<Self, SampleError> {
        Ok(Self {
            oracle: Oracle::open(&settings.executions)?,
            executions: settings.executions.clone(),
            work: settings.work,
            raise_every: settings.raise_every,
            executed: AtomicUsize::new(0),
        })
    }

    /// Half of its time, the effect, the other half, an answer that no second execution repeats.
    pub(super) async fn charge(&self, order: &Order) -> Result<Reply, Raised> {
        let half = order.slow.unwrap_or(self.work) / 2;
        tokio::time::sleep(half).await;
        match order.fail.as_str() {
            "before" => return Err(Raised::Before),
            "decline" => return Ok(Reply::new(402, json!({ "error": "declined", "id": id() }))),
            _ => self.oracle.execute(&order.marker)?,
        }
        let executed = self.executed.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::time::sleep(half).await;
        if order.fail == "after"
            || (self.raise_every > 0 && executed.is_multiple_of(self.raise_every))
        {
            return Err(Raised::After);
        }
        Ok(Reply::new(201, json!({ "id": id(), "marker": order.marker })))
    }

    /// How often `marker` was executed.
    pub(super) fn count(&self, marker: &str) -> std::io::Result<usize> {
        Ok(Oracle::executions(&self.executions)?.get(marker).copied().unwrap_or_default())
    }
}

fn id() -> String {
    format!("ch_{:016x}", fastrand::u64(..))
}

/// Longer than any client waits.
const SLOW_MS_MAX: u64 = 60_000;
