//! Logs on stderr, and traces to a collector. Both only of this project's own code: other crates log what they are
//! given, and that may be a header.

mod context;
mod export;
mod spans;

use std::io::IsTerminal;
use std::time::Duration;

use http::header::HeaderValue;
use http::{HeaderMap, Method, Request};
use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Span, debug_span, error};
use tracing_subscriber::filter::{EnvFilter, FilterExt, FilterFn, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use self::context::TraceContext;
use self::export::Exporter;
pub(super) use self::export::export_counts;
use crate::config::{Upstream, nearest};

/// What to log.
#[derive(Clone, Debug, clap::Args)]
pub struct LogFlags {
    /// What to log: error, warn, info, debug, trace, off, or a filter such as "info,onlyonce::once=debug"
    #[arg(long, value_name = "FILTER", env = "ONLYONCE_LOG", default_value = "info", value_parser = filter)]
    log: String,
}

impl LogFlags {
    /// By this filter.
    pub(crate) fn new(log: String) -> Self {
        Self { log }
    }
}

/// A word that is no level would be taken for the target of logs that do not exist, and silence all others.
pub(crate) fn filter(text: &str) -> Result<String, String> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let is_odd = |part: &&str| {
        !is_level(part) && !part.contains(['=', '[']) && !part.starts_with("onlyonce")
    };
    if let Some(odd) = parts().find(is_odd) {
        let near = nearest(odd, LEVELS.into_iter());
        let near = near.map(|level| format!("; did you mean {level:?}?")).unwrap_or_default();
        return Err(format!(
            "{odd:?} is no level (error, warn, info, debug, trace, off), and no target, which begins with onlyonce{near}"
        ));
    }
    // Whoever asks for more of one part still wants the warnings of all.
    let of_all = Some(OF_ALL).filter(|_| !parts().any(is_level));
    let filter = of_all.into_iter().chain(parts()).collect::<Vec<_>>().join(",");
    EnvFilter::builder().parse(&filter).map_err(|error| error.to_string())?;
    Ok(filter)
}

fn is_level(part: &str) -> bool {
    LEVELS.iter().any(|level| level.eq_ignore_ascii_case(part))
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
const OF_ALL: &str = "warn";

/// The logs and traces of this process. Traces that wait are sent by [`finish`](Self::finish).
#[derive(Debug)]
pub struct Telemetry(Option<Exporter>);

impl Telemetry {
    /// Begins to log, and to send traces if there is a collector. Call it once, before anything else starts.
    pub fn start(flags: &LogFlags, collector: Option<&Upstream>) -> Self {
        let exporter = collector.map(Exporter::start);
        let spans = exporter.as_ref().map(Exporter::layer);
        let spans = spans.map(|layer| layer.with_filter(own(LevelFilter::DEBUG)));
        let subscriber = Registry::default().with(spans).with(log(&flags.log));
        // Fails only if there is a subscriber already, and then that one is told everything.
        let _ = subscriber.try_init();
        std::panic::set_hook(Box::new(tell_panic));
        Self(exporter)
    }

    /// Sends the traces that wait, within a bound.
    pub fn finish(self) {
        if let Some(exporter) = self.0 {
            exporter.flush(FLUSH_WAIT);
        }
    }
}

fn log<S>(filter: &str) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let chosen = EnvFilter::builder().parse_lossy(filter).and(own(LevelFilter::TRACE));
    let layer = fmt::layer().with_writer(std::io::stderr);
    match std::io::stderr().is_terminal() {
        true => layer.with_filter(chosen).boxed(),
        false => {
            let json = layer.json().flatten_event(true).with_current_span(false);
            json.with_filter(chosen).boxed()
        }
    }
}

/// Only what this project says itself.
fn own(level: LevelFilter) -> FilterFn<impl Fn(&Metadata<'_>) -> bool + Clone> {
    let is_own = move |metadata: &Metadata<'_>| {
        *metadata.level() <= level && metadata.target().starts_with("onlyonce")
    };
    filter_fn(is_own).with_max_level_hint(level)
}

/// Where it was, and not what it says: the message may quote a key or a body.
fn tell_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    let backtrace = std::backtrace::Backtrace::capture();
    error!(location, thread, %backtrace, "a bug: panicked; the message may quote a request and is not shown");
}

/// The span of one request, within the trace that its client began.
pub(super) fn span_of<B>(request: &Request<B>) -> Span {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return Span::none();
    }
    let parent = TraceContext::of(request.headers()).map(|context| context.to_string());
    let (method, status) = (known(request.method()), tracing::field::Empty);
    debug_span!("request", traceparent = parent, method, status)
}

/// Passes the trace of the current span on with a request.
pub(super) fn propagate(headers: &mut HeaderMap) {
    let Some(current) = spans::current() else { return };
    let sent = TraceContext::of(headers);
    if sent.is_none_or(|sent| sent.trace_id != current.trace_id) {
        // The state belongs to a trace that could not be read.
        headers.remove("tracestate");
    }
    if let Ok(value) = HeaderValue::try_from(current.to_string()) {
        headers.insert("traceparent", value);
    }
}

/// A client may make up a method.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "_OTHER",
    }
}

/// How long the end of a process waits for the collector.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_filter_that_would_silence_all_is_refused() {
        for (text, near) in [("loud", None), ("inof", Some("info")), ("info,debgu", Some("debug"))]
        {
            let refused = filter(text).unwrap_err();
            assert!(refused.contains("is no level"), "{refused}");
            assert!(
                near.is_none_or(|near| refused.contains(&format!("did you mean {near:?}?"))),
                "{refused}"
            );
        }
        for text in
            ["info", "WARN", "off", "", "info,onlyonce::once=debug", "error , onlyonce=trace"]
        {
            filter(text).unwrap();
        }
        assert_eq!(filter("onlyonce::once=debug").unwrap(), "warn,onlyonce::once=debug");
    }

    // threat H5
    #[test]
    fn a_panic_tells_its_place_and_not_its_message() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "gateway::telemetry::tests::panics"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr) + String::from_utf8_lossy(&child.stdout);
        assert!(said.contains("a bug: panicked") && said.contains("telemetry.rs"), "{said}");
        assert!(!said.contains("CANARY"), "{said}");
    }

    #[test]
    #[ignore = "a child of a_panic_tells_its_place_and_not_its_message"]
    fn panics() {
        let _telemetry = Telemetry::start(&LogFlags { log: "trace".to_owned() }, None);
        let key = String::from("a CANARY\u{e9}");
        let thread = std::thread::spawn(move || key[..9].len());
        assert!(thread.join().is_err());
    }
}
