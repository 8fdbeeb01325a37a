//! What a relay has done, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::queue::Leased;

/// What one relay has done since it was made, for metrics: [`Relay::counts`](super::Relay::counts). It may be read while the
/// relay runs, and after it has ended; clones share the numbers.
///
/// It tells of this relay alone. What all relays have left to do is told by [`Parked::status`](super::Parked::status).
///
/// ```
/// use onlyonce::outbox::RelayCounts;
///
/// fn exposition(counts: &RelayCounts) -> String {
///     format!("outbox_shipped_total {}\noutbox_parked_total {}\n", counts.shipped(), counts.parked())
/// }
/// # assert!(exposition(&RelayCounts::default()).starts_with("outbox_shipped_total 0"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RelayCounts(Arc<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    shipped: AtomicU64,
    refused: AtomicU64,
    parked: AtomicU64,
    outages: AtomicU64,
    oldest_ms: AtomicU64,
}

impl RelayCounts {
    /// Deliveries that the sink took. A message that was delivered twice counts twice.
    pub fn shipped(&self) -> u64 {
        self.0.shipped.load(Ordering::Relaxed)
    }

    /// Deliveries that the sink refused.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Messages that were parked. Alert when it grows: each keeps its key waiting until an operator comes.
    pub fn parked(&self) -> u64 {
        self.0.parked.load(Ordering::Relaxed)
    }

    /// How often the sink was away for a topic: it was unavailable, or refused the messages of several keys and took none. An
    /// outage that lasts counts once.
    pub fn outages(&self) -> u64 {
        self.0.outages.load(Ordering::Relaxed)
    }

    /// How old the oldest message was of those that the relay took when it looked the last time; zero if there was none to
    /// take. It grows while the sink is away. Messages that wait behind a parked one are not seen.
    pub fn oldest_age(&self) -> Duration {
        Duration::from_millis(self.0.oldest_ms.load(Ordering::Relaxed))
    }

    pub(super) fn add_shipped(&self) {
        self.0.shipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_parked(&self) {
        self.0.parked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_outage(&self) {
        self.0.outages.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_age(&self, leased: &[Leased]) {
        let messages = leased.iter().map(|leased| &leased.message);
        let ages = messages.map(|message| message.leased_at.since_ms(message.created_at));
        if let Some(oldest_ms) = ages.max() {
            self.0.oldest_ms.store(u64::try_from(oldest_ms).unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// There is nothing to take.
    pub(super) fn note_no_age(&self) {
        self.0.oldest_ms.store(0, Ordering::Relaxed);
    }
}
