//! How a relay works.

use std::time::Duration;

/// How a relay works.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    pub(super) schema: Option<String>,
    pub(super) topic: Option<String>,
    pub(super) in_flight_max: usize,
    pub(super) lease: Duration,
    pub(super) attempts_max: i32,
    pub(super) unavailable_max: Option<u32>,
    pub(super) retry_pause: Duration,
    pub(super) poll_max: Duration,
}

impl RelayOptions {
    /// All topics of the schema `onlyonce`, 64 messages at a time, a lease of 30 seconds, eight attempts.
    pub fn new() -> Self {
        Self {
            schema: None,
            topic: None,
            in_flight_max: 64,
            lease: Duration::from_secs(30),
            attempts_max: 8,
            unavailable_max: None,
            retry_pause: Duration::from_secs(1),
            poll_max: Duration::from_secs(1),
        }
    }

    /// The schema that holds the messages; it goes before one that the address names.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Ships only this topic. A topic that the sink does not take stops no other, but a destination that hangs takes places from
    /// others: give one that is often slow a relay of its own. A topic that no relay ships is kept for ever.
    #[must_use]
    pub fn with_topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// How many messages are sent at the same time: 64, at most 1,000; a quarter of them may have failed before. Each may have 1 MiB in memory. A small number also keeps
    /// small what the relay asks of the database at once, which is at most 16 messages.
    #[must_use]
    pub fn with_in_flight_max(mut self, in_flight_max: usize) -> Self {
        self.in_flight_max = in_flight_max.clamp(1, IN_FLIGHT_MAX);
        self
    }

    /// How long a message belongs to the relay that took it: 30 seconds, at least one, at most an hour. A send may take half
    /// of it. If a relay dies, the keys of the messages that it was sending wait until their leases are over; if a lease is
    /// shorter than the sink needs, nothing is ever shipped.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        self
    }

    /// How many refusals park a message: 8.
    #[must_use]
    pub fn with_attempts_max(mut self, attempts_max: u32) -> Self {
        self.attempts_max = i32::try_from(attempts_max.max(1)).unwrap_or(i32::MAX);
        self
    }

    /// How often a message may find the sink unavailable, each time after the sink took another one of its topic: without an end
    /// by default. From then on each such time counts as a refusal, so that a receiver that answers 500 to one message parks
    /// it. Each relay counts for itself, and an outage counts nothing. With a sink that is often busy, a small number parks
    /// messages that only had bad luck.
    #[must_use]
    pub fn with_unavailable_max(mut self, times: u32) -> Self {
        self.unavailable_max = Some(times.max(1));
        self
    }

    /// The pause after the first refusal of a message: one second. It doubles with each, up to ten minutes.
    #[must_use]
    pub fn with_retry_pause(mut self, retry_pause: Duration) -> Self {
        self.retry_pause = retry_pause.min(RETRY_PAUSE_MAX);
        self
    }

    /// How long an idle relay waits before it looks for messages again: up to one second. Shorter finds a message earlier and
    /// asks the database more often.
    #[must_use]
    pub fn with_poll_max(mut self, poll_max: Duration) -> Self {
        self.poll_max = poll_max.max(POLL_FIRST);
        self
    }
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The first pause of a relay that finds nothing.
pub(super) const POLL_FIRST: Duration = Duration::from_millis(50);
/// The longest pause after a refusal.
pub(super) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(600);
const IN_FLIGHT_MAX: usize = 1_000;
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(3_600);
