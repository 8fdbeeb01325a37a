//! How many records there are, asked at most once a second however many pages look.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onlyonce::Once;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::store::Census;
use tokio::time::timeout;

#[derive(Debug, Default)]
pub(super) struct CensusCache(Mutex<Option<(Duration, Option<Census>)>>);

impl CensusCache {
    /// `None` while the store does not answer.
    pub(super) async fn read(&self, once: &Once) -> Option<Census> {
        let now = SystemClock.boot();
        let kept = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, census)) = kept.filter(|(at, _)| now.saturating_sub(*at) < FRESH) {
            let _ = at;
            return census;
        }
        let counted = timeout(STORE_WAIT, once.operations().census()).await;
        let census = counted.ok().and_then(Result::ok);
        let kept = Some((SystemClock.boot(), census));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        census
    }
}

const FRESH: Duration = Duration::from_secs(1);
/// How long a page waits for a store that does not answer.
const STORE_WAIT: Duration = Duration::from_secs(3);
