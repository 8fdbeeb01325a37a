//! What happened so far, as Prometheus text. No key is ever in a label.

use std::fmt;

use onlyonce::store::layered::Layered;
use onlyonce::store::postgres::PostgresStore;
use onlyonce::{Counts, Once};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::store::About;

/// The whole page.
pub(super) fn text(once: &Once, about: &About) -> String {
    let mut registry = Registry::with_prefix("onlyonce");
    registry.register_collector(Box::new(Counted(once.clone(), about.clone())));
    let mut page = String::new();
    text::encode(&mut page, &registry).expect("a string takes everything that is written to it");
    page
}

#[derive(Debug)]
struct Counted(Once, About);

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let routes = self.0.counts_by_route();
        for (name, help) in BY_ROUTE {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (route, counts) in &routes {
                let labels = [("route", route.as_ref())];
                ConstCounter::new(count(counts, name)).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help) in IN_ALL {
            let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count(&self.0.counts(), name)).encode(family)?;
        }
        gauge(&mut encoder, "executing", "Operations under way", self.0.executing())?;
        let waiting = self.0.waiting();
        gauge(&mut encoder, "waiting", "Callers that wait for the answer of another", waiting)?;
        let ahead_s = usize::try_from(self.0.clock_ahead_by().as_secs()).unwrap_or(usize::MAX);
        gauge(&mut encoder, "store_clock_ahead_seconds", CLOCK_AHEAD, ahead_s)?;
        let best_effort = usize::from(self.1.is_best_effort);
        gauge(
            &mut encoder,
            "store_best_effort",
            "1 if the store may lose what it said",
            best_effort,
        )?;
        self.1.filter.as_ref().map_or(Ok(()), |filter| encode_filter(&mut encoder, filter))
    }
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
        let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(count).encode(family)?;
    }
    gauge(encoder, "filter_up", "1 while the filter is in use", usize::from(filter.is_filter_up()))
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: usize) -> fmt::Result {
    let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value as i64).encode(family)
}

fn count(counts: &Counts, name: &str) -> u64 {
    counts.named().find(|(found, _)| *found == name).map_or(0, |(_, count)| count)
}

const CLOCK_AHEAD: &str = "How far the store's clock is ahead of the time that this node trusts; above 0, someone set the clock forward";
const BY_ROUTE: [(&str, &str); 18] = [
    ("executed", "Operations executed"),
    ("replayed", "Retries answered with the stored response"),
    ("reused", "Requests refused because their key was used for a different request"),
    ("in_progress", "Retries refused because the first request is still running"),
    ("unknown", "Requests answered with an unknown outcome, retries included"),
    ("released", "Operations released because nothing was executed; their key can be used again"),
    ("fenced", "Results refused because another attempt had taken the operation over"),
    ("disowned", "Claims given up because the store did not answer in time; nothing was executed"),
    ("store_down", "Requests refused because the store was unavailable"),
    ("passed", "Requests executed without protection because the store was unavailable"),
    ("overloaded", "Requests refused because a limit of this process was reached"),
    ("observed_executed", "Observe mode: first requests, which would have been executed"),
    (
        "observed_replayed",
        "Observe mode: retries, which would have been answered with the stored response",
    ),
    ("observed_reused", "Observe mode: requests whose key belongs to another request"),
    ("observed_in_progress", "Observe mode: retries whose first request was still running"),
    ("observed_unknown", "Observe mode: requests whose outcome would have been unknown"),
    (
        "observed_refused",
        "Observe mode: requests that would have been refused for key, caller or size",
    ),
    ("unobserved", "Observe mode: requests that were executed without being watched"),
];
const IN_ALL: [(&str, &str); 4] = [
    ("reaped", "Operations marked unknown because the process that executed them went silent"),
    ("swept", "Expired records deleted"),
    ("renewals_unsure", "Lease renewals that the store did not confirm"),
    ("unsettled", "Responses given up because the store did not accept them"),
];

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
}
