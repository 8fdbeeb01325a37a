//! What happened so far, as Prometheus text. No key is ever in a label.

mod names;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onlyonce::store::layered::Layered;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::{Counts, Latency, Once};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use self::names::{BY_ROUTE, IN_ALL};
use super::census::Counted;
use super::store::About;
use super::telemetry::export_counts;
use crate::connections::ConnectionCounts;
use crate::files::upstream_share;

/// The whole page.
pub(crate) fn text(once: &Once, about: &About) -> String {
    let mut registry = Registry::default();
    let ours = registry.sub_registry_with_prefix("onlyonce");
    ours.register("build", "The version that runs, and its store", Info::new(build(about)));
    ours.register_collector(Box::new(Collected(once.clone(), about.clone())));
    let start = ConstGauge::new(about.started_at.as_ms() as f64 / 1000.0);
    let help = "When this process started, in seconds since 1970";
    registry.register_with_unit("process_start_time", help, Unit::Seconds, start);
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("a string takes everything that is written to it");
    page
}

fn build(about: &About) -> [(&'static str, &'static str); 3] {
    [
        ("version", env!("CARGO_PKG_VERSION")),
        ("store", about.kind),
        ("arch", std::env::consts::ARCH),
    ]
}

#[derive(Debug)]
struct Collected(Once, About);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_counts(&mut encoder, &self.0)?;
        encode_latencies(&mut encoder, &self.0)?;
        encode_state(&mut encoder, &self.0, &self.1)?;
        if let Some(counted) = self.1.census.get() {
            encode_census(&mut encoder, &counted)?;
        }
        encode_exports(&mut encoder)?;
        encode_connections(&mut encoder, &self.1)?;
        self.1.filter.as_ref().map_or(Ok(()), |filter| encode_filter(&mut encoder, filter))
    }
}

fn encode_counts(encoder: &mut DescriptorEncoder<'_>, once: &Once) -> fmt::Result {
    let (routes, in_all) = (once.counts_by_route(), once.counts());
    for (name, help) in BY_ROUTE {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (route, counts) in &routes {
            let labels = [("route", route.as_ref())];
            ConstCounter::new(count(counts, name)).encode(family.encode_family(&labels)?)?;
        }
    }
    IN_ALL.iter().try_for_each(|(name, help)| counter(encoder, name, help, count(&in_all, name)))
}

fn encode_latencies(encoder: &mut DescriptorEncoder<'_>, once: &Once) -> fmt::Result {
    let (calls, routes) = (once.latencies().store_calls, once.latencies_by_route());
    let of_calls = calls.iter().map(|call| (call.call, call.latency));
    histogram(encoder, ("store_call", STORE_CALL, "call"), of_calls)?;
    let of_upstream = routes.iter().map(|(route, latency)| (route.as_ref(), latency.handler));
    histogram(encoder, ("upstream", UPSTREAM, "route"), of_upstream)?;
    let of_requests = routes.iter().map(|(route, latency)| (route.as_ref(), latency.request));
    histogram(encoder, ("request", REQUEST, "route"), of_requests)?;
    let (name, help) = ("store_failures", "Store calls that failed or were not answered");
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for call in &calls {
        let labels = [("call", call.call)];
        ConstCounter::new(call.failed).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_state(encoder: &mut DescriptorEncoder<'_>, once: &Once, about: &About) -> fmt::Result {
    gauge(encoder, "executing", "Operations under way in this process", once.executing() as i64)?;
    let waiting = once.waiting() as i64;
    gauge(encoder, "waiting", "Callers that wait for the answer of another", waiting)?;
    let is_up = i64::from(once.is_store_up());
    gauge(
        encoder,
        "store_up",
        "0 from a call that found the store unavailable until the next that it answered",
        is_up,
    )?;
    seconds(encoder, "store_clock_ahead", CLOCK_AHEAD, once.clock_ahead_by())?;
    let best_effort = i64::from(about.is_best_effort);
    gauge(encoder, "store_best_effort", "1 if the store may lose what it said", best_effort)?;
    counter(encoder, "unopened", UNOPENED, once.unopened())?;
    let alone = i64::from(once.counts_velocity_alone());
    gauge(encoder, "velocity_alone", VELOCITY_ALONE, alone)?;
    seconds(encoder, "sweep_lag", SWEEP_LAG, once.sweep_lag())?;
    let every = once.limits().sweep_every;
    seconds(encoder, "sweep_interval", "How often expired records are deleted", every)
}

fn encode_census(encoder: &mut DescriptorEncoder<'_>, counted: &Counted) -> fmt::Result {
    let census = &counted.census;
    let (running, unknown) = (census.running as i64, census.unknown as i64);
    gauge(encoder, "operations_running", "Operations that run now, in the whole store", running)?;
    gauge(encoder, "operations_unknown", "Operations whose outcome is unknown now", unknown)?;
    gauge(encoder, "records", "Records in the store, about", census.records as i64)?;
    seconds(encoder, "oldest_running", "Age of the oldest running operation", counted.running_for)?;
    let help = "How long the oldest unknown outcome is unknown";
    seconds(encoder, "oldest_unknown", help, counted.unknown_for)
}

fn encode_exports(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(counts) = export_counts() else { return Ok(()) };
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let help = "Spans that the trace collector took";
    counter(encoder, "otlp_exported", help, read(&counts.exported))?;
    let help = "Spans dropped because the trace collector did not take them in time";
    counter(encoder, "otlp_dropped", help, read(&counts.dropped))
}

fn encode_connections(encoder: &mut DescriptorEncoder<'_>, about: &About) -> fmt::Result {
    let listeners = [&about.listeners.clients, &about.listeners.operators];
    let listeners = listeners.map(|connections| (connections.listener(), connections.counts()));
    let (open, max) =
        (listeners.map(|(_, counts)| counts.open), listeners.map(|(_, counts)| counts.max));
    for (name, help, numbers) in [
        ("connections", "Connections that are open", open),
        ("connections_max", "How many connections may be open", max),
    ] {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for ((listener, _), number) in listeners.iter().zip(numbers) {
            let labels = [("listener", *listener)];
            ConstGauge::new(number as i64).encode(family.encode_family(&labels)?)?;
        }
    }
    let open = upstream_share().open() as i64;
    gauge(encoder, "upstream_connections", "Connections to services that are open", open)?;
    let (name, help) = ("connections_dropped", CONNECTIONS_DROPPED);
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (listener, counts) in &listeners {
        let ConnectionCounts { full, made_room, no_file, .. } = *counts;
        for (why, count) in [("full", full), ("made_room", made_room), ("no_file", no_file)] {
            let labels = [("listener", *listener), ("why", why)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_filter(
    encoder: &mut DescriptorEncoder<'_>,
    filter: &Layered<PostgresStore>,
) -> fmt::Result {
    let counts = filter.counts();
    for (name, help, count) in [
        ("filter_hits", "Retries answered by the filter", counts.hits),
        ("filter_misses", "Retries that the filter did not know", counts.misses),
        ("filter_unreadable", "Filter entries that failed verification", counts.unreadable),
        ("filter_unanswered", "Filter calls that timed out", counts.unanswered),
        ("filter_kept", "Responses copied to the filter", counts.kept),
        (
            "filter_dropped",
            "Responses not copied to the filter because its queue was full or late",
            counts.dropped,
        ),
    ] {
        counter(encoder, name, help, count)?;
    }
    let is_up = i64::from(filter.is_filter_up());
    gauge(encoder, "filter_up", "1 while the filter is in use", is_up)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(count).encode(family)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(family)
}

/// A gauge in seconds.
fn seconds(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: Duration,
) -> fmt::Result {
    let family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
    ConstGauge::new(value.as_secs_f64()).encode(family)
}

/// A histogram in seconds, one for each value of `label`.
fn histogram<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, label): (&str, &str, &str),
    latencies: impl Iterator<Item = (&'a str, Latency)>,
) -> fmt::Result {
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Histogram)?;
    for (value, latency) in latencies {
        let labels = [(label, value)];
        let mut one = family.encode_family(&labels)?;
        let bounds = Latency::BOUNDS.iter().map(Duration::as_secs_f64).chain([f64::MAX]);
        let buckets: Vec<_> = bounds.zip(latency.buckets).collect();
        let sum = latency.sum.as_secs_f64();
        one.encode_histogram::<NoLabelSet>(sum, latency.count(), &buckets, None)?;
    }
    Ok(())
}

fn count(counts: &Counts, name: &str) -> u64 {
    counts.named().find(|(found, _)| *found == name).map_or(0, |(_, count)| count)
}

const VELOCITY_ALONE: &str =
    "1 while Redis does not answer, and this node counts for velocity limits by itself";
const UNOPENED: &str =
    "Sealed values read from the store that no key of [seal] opened; their answers are not kept";
const STORE_CALL: &str = "How long calls of the store took, failed ones included";
const UPSTREAM: &str = "How long the upstream took for a guarded request, to its whole answer";
const REQUEST: &str =
    "How long guarded requests took, from their head to the head of their answer, replays included";
const CLOCK_AHEAD: &str = "How far the store's clock is ahead of the time that this node trusts; above 0, someone set the clock forward";
const CONNECTIONS_DROPPED: &str = "Connections closed for want of room: new ones while all others were at work (full), idle ones for a \
                                   new one (made_room), and times that none could be accepted (no_file)";
const SWEEP_LAG: &str = "How long ago a sweep last deleted everything that had expired";

#[cfg(test)]
mod tests {
    use onlyonce::store::memory::MemoryStore;

    use super::*;

    #[test]
    fn every_count_is_on_the_page() {
        let once = Once::new(MemoryStore::new());
        for (name, _) in once.counts().named() {
            let is_listed = BY_ROUTE.iter().chain(&IN_ALL).any(|(listed, _)| *listed == name);
            assert!(is_listed, "{name}");
        }
        let page = text(&once, &About::default());
        assert!(
            page.contains("onlyonce_reaped_total 0") && page.contains("onlyonce_executing 0"),
            "{page}"
        );
    }

    /// What the page says and what the documentation says are the same names.
    #[test]
    fn every_name_is_documented_and_every_documented_name_is_on_the_page() {
        let once = Once::new(MemoryStore::new());
        let page = text(&once, &About::default());
        let on_page: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .map(|(name, kind)| match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            })
            .collect();
        let manual = include_str!("../../../../docs/metrics.md");
        let documented: Vec<_> = manual
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next())
            .collect();
        for name in &on_page {
            assert!(documented.contains(&name.as_str()), "{name} is not in docs/metrics.md");
        }
        // Told only with a filter, with a collector, or once the store has counted.
        let needs_more = |name: &str| {
            let parts = ["_filter_", "_otlp_", "_oldest_", "_operations_", "_records"];
            parts.iter().any(|part| name.contains(part))
        };
        for name in documented.into_iter().filter(|name| !needs_more(name)) {
            assert!(on_page.iter().any(|found| found == name), "{name} is not on the page");
        }
    }
}
