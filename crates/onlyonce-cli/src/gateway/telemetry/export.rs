//! Sends spans to a collector: OTLP over HTTP, in JSON, from a thread of its own.
//!
//! Nobody waits for the collector: spans go into a bounded queue, and those that find it full, or that the collector
//! does not take, are dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::super::on_thread;
use super::super::upstream::{Terms, Upstream};
use super::spans::Spans;
use crate::config;
use crate::tls::Outward;

/// The spans that the collector took, and those that were dropped, since the process started.
#[derive(Debug, Default)]
pub(in crate::gateway) struct ExportCounts {
    pub(in crate::gateway) exported: AtomicU64,
    pub(in crate::gateway) dropped: AtomicU64,
}

/// The counts of this process; `None` where there is no collector.
pub(in crate::gateway) fn export_counts() -> Option<&'static ExportCounts> {
    COUNTS.get()
}

static COUNTS: OnceLock<ExportCounts> = OnceLock::new();

fn counts() -> &'static ExportCounts {
    COUNTS.get_or_init(ExportCounts::default)
}

/// The thread that sends.
#[derive(Debug)]
pub(super) struct Exporter(Queue);

/// The way to the thread. A clone is the same.
#[derive(Clone, Debug)]
pub(super) struct Queue(mpsc::Sender<Item>);

#[derive(Debug)]
enum Item {
    Span(Box<Value>),
    /// Send everything that came before, then drop this.
    Flush(std::sync::mpsc::Sender<()>),
}

impl Exporter {
    pub(super) fn start(collector: &config::Upstream) -> Self {
        counts();
        let (queue, waiting) = mpsc::channel(SPANS_MAX);
        let uri = collector.uri().clone();
        on_thread("onlyonce-otlp", move || async move {
            let collector =
                Upstream::new(&uri, &Outward::of_this_machine()).map_err(std::io::Error::other)?;
            Collector(Arc::new(collector)).send_all(waiting).await;
            Ok(())
        });
        Self(Queue(queue))
    }

    pub(super) fn layer(&self) -> Spans {
        Spans::new(self.0.clone())
    }

    /// Waits until everything that was queued was sent or dropped, at most `within`.
    pub(super) fn flush(self, within: Duration) {
        let (done, is_done) = std::sync::mpsc::channel();
        if self.0.0.try_send(Item::Flush(done)).is_ok() {
            // The sender is dropped when the flush has ended.
            let _ = is_done.recv_timeout(within);
        }
    }
}

impl Queue {
    pub(super) fn push(&self, span: Value) {
        if self.0.try_send(Item::Span(Box::new(span))).is_err() {
            counts().dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Collector(Arc<Upstream>);

impl Collector {
    async fn send_all(self, mut waiting: mpsc::Receiver<Item>) {
        let mut items = Vec::new();
        while waiting.recv_many(&mut items, 1).await > 0 {
            if !items.iter().any(|item| matches!(item, Item::Flush(_))) {
                sleep(BATCH_WAIT).await;
            }
            while items.len() < BATCH_MAX
                && let Ok(item) = waiting.try_recv()
            {
                items.push(item);
            }
            self.send(std::mem::take(&mut items)).await;
        }
    }

    async fn send(&self, items: Vec<Item>) {
        let (mut spans, mut flushes) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Span(span) => spans.push(*span),
                Item::Flush(done) => flushes.push(done),
            }
        }
        let count = spans.len() as u64;
        let is_taken =
            count == 0 || matches!(timeout(SEND_WAIT, self.post(&spans)).await, Ok(Ok(())));
        let counter = if is_taken { &counts().exported } else { &counts().dropped };
        counter.fetch_add(count, Ordering::Relaxed);
        drop(flushes);
    }

    async fn post(&self, spans: &[Value]) -> Result<(), BoxError> {
        let body = Body::new(Full::from(envelope(spans).to_string()));
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = "/v1/traces".parse()?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        let terms = Terms::new(SEND_WAIT, IDLE_MAX);
        let (head, body) = self.0.send(request, terms).await?.into_parts();
        // Read to its end, so that the connection can be used again.
        Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
        if head.status.is_success() { Ok(()) } else { Err("the collector refused".into()) }
    }
}

fn envelope(spans: &[Value]) -> Value {
    let name = json!([{ "key": "service.name", "value": { "stringValue": "onlyonce" } }]);
    let scope = json!({ "name": "onlyonce", "version": env!("CARGO_PKG_VERSION") });
    let spans = json!([{ "scope": scope, "spans": spans }]);
    json!({ "resourceSpans": [{ "resource": { "attributes": name }, "scopeSpans": spans }] })
}

/// How many spans wait for the collector.
const SPANS_MAX: usize = 4096;
/// How many are sent at a time.
const BATCH_MAX: usize = 512;
/// How long a first span waits for others.
const BATCH_WAIT: Duration = Duration::from_millis(200);
/// How long the collector may take.
const SEND_WAIT: Duration = Duration::from_secs(5);
/// A collector may close a connection that is idle for longer.
const IDLE_MAX: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 64 * 1024;
