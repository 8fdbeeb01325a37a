//! Makes a span of OpenTelemetry of each span of this process.

use std::fmt;

use onlyonce::clock::{Clock, SystemClock};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Span, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::Registry;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::context::TraceContext;
use super::export::Queue;

/// Gives each span that ends to the exporter.
pub(super) struct Spans {
    pub(super) queue: Queue,
    /// What the wall clock said when the boot clock was at zero, in nanoseconds.
    pub(super) boot_at_ns: u128,
}

/// A span that has not ended.
struct Open {
    context: TraceContext,
    parent: Option<u64>,
    started_at_ns: u128,
    /// When the span was last left: its task may be dropped, or wait for others, long after.
    ended_at_ns: u128,
    fields: Fields,
}

#[derive(Default)]
struct Fields {
    remote: Option<TraceContext>,
    attributes: Vec<Value>,
}

/// The context of the current span, if it is traced.
pub(super) fn current() -> Option<TraceContext> {
    let context = Span::current().with_subscriber(|(id, dispatch)| {
        let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
        span.extensions().get::<Open>().map(|open| open.context)
    });
    context.flatten()
}

impl Spans {
    pub(super) fn new(queue: Queue) -> Self {
        let wall_ns = u128::from(SystemClock.wall().as_ms().unsigned_abs()) * 1_000_000;
        let boot_at_ns = wall_ns.saturating_sub(SystemClock.boot().as_nanos());
        Self { queue, boot_at_ns }
    }

    fn now_ns(&self) -> u128 {
        self.boot_at_ns + SystemClock.boot().as_nanos()
    }

    fn opened(&self, parent: Option<TraceContext>, fields: Fields) -> Open {
        let parent = parent.or(fields.remote);
        let context = TraceContext {
            trace_id: parent.map_or_else(random, |parent| parent.trace_id),
            span_id: random() as u64,
            is_sampled: parent.is_none_or(|parent| parent.is_sampled),
        };
        let parent = parent.map(|parent| parent.span_id);
        let now_ns = self.now_ns();
        Open { context, parent, started_at_ns: now_ns, ended_at_ns: now_ns, fields }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<Open>().map(|open| open.context)
        });
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let open = self.opened(parent, fields);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut open.fields);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            open.ended_at_ns = self.now_ns();
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        if let Some(open) = span.extensions_mut().remove::<Open>()
            && open.context.is_sampled
        {
            self.queue.push(written(span.name(), open));
        }
    }
}

/// As OTLP writes a span in JSON.
fn written(name: &str, open: Open) -> Value {
    // 1 is internal, 2 is a server's.
    let kind = if name == "request" { 2 } else { 1 };
    json!({
        "traceId": format!("{:032x}", open.context.trace_id),
        "spanId": format!("{:016x}", open.context.span_id),
        "parentSpanId": open.parent.map(|parent| format!("{parent:016x}")).unwrap_or_default(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": open.started_at_ns.to_string(),
        "endTimeUnixNano": open.ended_at_ns.to_string(),
        "attributes": open.fields.attributes,
    })
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "traceparent" => self.remote = TraceContext::parse(value),
            _ => self.add(field, json!({ "stringValue": value })),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!({ "intValue": value.to_string() }));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, json!({ "stringValue": format!("{value:?}") }));
    }
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        self.attributes
            .push(json!({ "key": format!("onlyonce.{}", field.name()), "value": value }));
    }
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    // Without random numbers no claim could be made either; a trace with a poor id harms nobody.
    let _ = getrandom::fill(&mut bytes);
    u128::from_be_bytes(bytes).max(1)
}
