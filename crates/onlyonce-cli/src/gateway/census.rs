//! How many operations run, or wait for a person, in the whole store: counted now and then in the background, because
//! a scrape must not cost the store a count.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce::Once;
use onlyonce::clock::StoreTime;
use onlyonce::store::Census;
use tokio::time::sleep;

/// The last count. A clone is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastCensus(Arc<Mutex<Option<Counted>>>);

/// A census, and how old its oldest operations were.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) census: Census,
    pub(super) running_for: Duration,
    pub(super) unknown_for: Duration,
}

impl LastCensus {
    /// `None` before the first answer of the store.
    pub(super) fn get(&self) -> Option<Counted> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts for ever. A count that fails leaves the last one standing.
    pub(super) async fn refresh(self, once: Once, every: Duration) {
        loop {
            if let (Ok(census), Some(now)) = (once.operations().census().await, once.now()) {
                let age = |since: Option<StoreTime>| {
                    let ms = since.map_or(0, |since| now.since_ms(since));
                    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
                };
                let (running_for, unknown_for) =
                    (age(census.running_since), age(census.unknown_since));
                let counted = Counted { census, running_for, unknown_for };
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
            }
            sleep(every).await;
        }
    }
}

/// Between two counts.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// The same where each look at the store is paid for.
pub(super) const EVERY_PAID: Duration = Duration::from_secs(60);
