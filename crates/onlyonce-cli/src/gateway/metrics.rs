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
        let clock_held = usize::from(self.0.is_clock_held());
        gauge(&mut encoder, "clock_held", "1 while the store's clock is not trusted", clock_held)?;
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
        ("filter_hits", "Answers from the filter", counts.hits),
        ("filter_misses", "Answers for which the store was asked", counts.misses),
        ("filter_unreadable", "Entries of the filter that did not verify", counts.unreadable),
        ("filter_unanswered", "Calls that the filter did not answer in time", counts.unanswered),
        ("filter_kept", "Answers that were copied to the filter", counts.kept),
        (
            "filter_dropped",
            "Answers that were not copied, for want of room or time",
            counts.dropped,
        ),
    ] {
        let family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(count).encode(family)?;
    }
    gauge(
        encoder,
        "filter_up",
        "1 if the filter is asked at all",
        usize::from(filter.is_filter_up()),
    )
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: usize) -> fmt::Result {
    let family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value as i64).encode(family)
}

fn count(counts: &Counts, name: &str) -> u64 {
    counts.named().find(|(found, _)| *found == name).map_or(0, |(_, count)| count)
}

const BY_ROUTE: [(&str, &str); 18] = [
    ("executed", "Operations that were executed"),
    ("replayed", "Retries that were answered from a record"),
    ("reused", "Keys that came with another request"),
    ("in_progress", "Retries that were told that the first still runs"),
    ("unknown", "Callers that were told that the outcome is unknown"),
    ("released", "Claims that were given back because nothing was executed"),
    ("fenced", "Late writes of an owner whose record had been taken by another"),
    ("disowned", "Claims that the store did not answer in time"),
    ("store_down", "Requests that were refused because the store was down"),
    ("passed", "Requests that ran unguarded because the store was down"),
    ("overloaded", "Requests that were refused because a bound was reached"),
    ("observed_executed", "Observe mode: requests that would have been executed as the first"),
    ("observed_replayed", "Observe mode: requests that would have been answered from a record"),
    ("observed_reused", "Observe mode: requests whose key belongs to another request"),
    ("observed_in_progress", "Observe mode: requests whose first would still have been running"),
    ("observed_unknown", "Observe mode: requests whose outcome would have been unknown"),
    (
        "observed_refused",
        "Observe mode: requests that would have been refused for key, caller or size",
    ),
    ("unobserved", "Observe mode: requests that ran without being looked at"),
];
const IN_ALL: [(&str, &str); 4] = [
    ("reaped", "Running records that were marked unknown because their owner was silent"),
    ("swept", "Expired records that were deleted"),
    ("renewals_unsure", "Renewals of a lease that the store did not confirm"),
    ("unsettled", "Answers that were given up because the store did not take them"),
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
