//! Callers that wait for the answer of another request. A waiter never changes a record.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tracing::{Instrument, debug_span};

use super::claim::NoAnswer;
use super::flight::Joined;
use super::{Ask, Ended, Inner, Refusal};
use crate::engine::Write;
use crate::planted::{Planted, planted};
use crate::record::State;
use crate::scope::OperationId;
use crate::store::{Guard, Next, Seen};

impl Inner {
    /// Waits at most `wait` for the operation to end, without a connection or a lock of the store.
    pub(crate) async fn wait<T>(&self, ask: &Ask, wait: Duration) -> Ended<T> {
        let Some(_place) = self.waiters.enter(ask.id, ask.principal) else {
            return Ended::Refused(Refusal::InProgress);
        };
        ask.counters.waited.one();
        let span = debug_span!("wait", operation = %ask.id, route = %ask.policy.route());
        let ended = timeout(wait, self.wait_for_end(ask)).instrument(span).await;
        if planted(Planted::WaiterDeletes) && ended.is_err() {
            self.delete(ask).await;
        }
        ended.unwrap_or(Ended::Refused(Refusal::InProgress))
    }

    /// What a planted bug does to the record that it has waited for.
    async fn delete(&self, ask: &Ask) {
        if let Ok(Seen { record: Some(record), .. }) = self.store.load(ask.id).await {
            let guard = Guard::Unchanged(record.revision());
            let _ = self.store.swap(ask.id, Write { guard, next: Next::Absent, about: None }).await;
        }
    }

    async fn wait_for_end<T>(&self, ask: &Ask) -> Ended<T> {
        let mut poll = POLL_MIN;
        loop {
            // Subscribed before the record is read, so that no change falls in between.
            let changed = self.store.changed(ask.id);
            if let Some(ended) = self.look(ask).await {
                return ended;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep_until(Instant::now() + self.until_look(poll, ask.id)) => poll = (poll * 2).min(POLL_MAX),
            }
        }
    }

    /// How long until a waiter looks again by itself. In a store that cannot wake it, all waiters of a key look at the same
    /// moments, so that they share a read: a key costs as many reads as there are nodes. Other keys have other moments.
    fn until_look(&self, poll: Duration, id: OperationId) -> Duration {
        let [.., last] = *id.as_bytes();
        match self.store.hears_other_nodes() {
            true => poll,
            false => until_next(poll, self.clock.boot() + POLL_MIN * u32::from(last) / 256),
        }
    }

    /// The answer for a waiter, if the operation has ended.
    async fn look<T>(&self, ask: &Ask) -> Option<Ended<T>> {
        if let Some(refusal) = self.cached_for(ask) {
            return Some(Ended::Refused(refusal));
        }
        let load = || async { self.store.load(ask.id).await.map_err(|_| NoAnswer::NotDone) };
        let (Joined::Led(seen) | Joined::Followed(seen)) = self.loads.join(ask.id, load).await;
        let seen = seen.ok()?;
        let refusal = after_waiting(&seen, ask)?;
        if let (Refusal::Replay(_), Some(record)) = (&refusal, &seen.record) {
            self.cache.keep(ask.id, record, self.clock.boot());
        }
        Some(Ended::Refused(refusal))
    }
}

/// How long until the next whole multiple of `poll` on the boot clock.
fn until_next(poll: Duration, boot: Duration) -> Duration {
    let passed = boot.as_nanos() % poll.as_nanos().max(1);
    poll.saturating_sub(Duration::from_nanos(u64::try_from(passed).unwrap_or(0)))
}

/// The answer for a waiter, by the record; `None` while the operation runs.
fn after_waiting(seen: &Seen, ask: &Ask) -> Option<Refusal> {
    match by_record(seen, ask) {
        Some(Refusal::InProgress) => None,
        None => Some(Refusal::InProgress),
        ended => ended,
    }
}

/// The answer to a request that may not execute the operation, by the record; `None` if the key is free.
pub(super) fn by_record(seen: &Seen, ask: &Ask) -> Option<Refusal> {
    let record = seen.record.as_ref().filter(|record| !record.is_expired(seen.now))?;
    match &record.state {
        State::Released { .. } => None,
        _ if !record.fingerprint.matches(&ask.fingerprint) => {
            Some(Refusal::reused(&record.fingerprint, &ask.fingerprint))
        }
        State::Completed { response, .. } => Some(Refusal::Replay(response.clone())),
        State::Unknown { since } => Some(Refusal::Unknown { since: *since }),
        State::Running { .. } => Some(Refusal::InProgress),
    }
}

/// How often a waiter reads the record without being woken, in case a wake-up was lost.
const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_that_came_at_different_moments_look_at_the_same_ones() {
        let ms = Duration::from_millis;
        for boot in [3_000, 3_001, 3_250, 3_999] {
            let next = ms(boot) + until_next(ms(1_000), ms(boot));
            assert_eq!(next, ms(4_000));
        }
    }
}
