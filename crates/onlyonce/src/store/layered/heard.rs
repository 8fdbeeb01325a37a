//! What was heard of the authority's clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Reading, StoreTime};

/// Tells the authority's time between two of its answers.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Option<Last>>);

#[derive(Clone, Copy, Debug)]
struct Last {
    /// Its time belongs to some moment between these two: asked, and answered.
    asked: Reading,
    answered: Reading,
    asked_at: Duration,
}

/// The authority's time now: not earlier than the one, not later than the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now {
    pub(super) earliest: StoreTime,
    pub(super) latest: StoreTime,
}

impl Heard {
    pub(super) fn hear(&self, now: StoreTime, asked_at: Duration, boot: Duration) {
        let (asked, answered) = (Reading::new(now, asked_at), Reading::new(now, boot));
        let last = Last { asked, answered, asked_at };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// `None` if it was never heard, or too long ago, or is held: then only the authority can say.
    pub(super) fn now(&self, boot: Duration) -> Option<Now> {
        let last = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let is_fresh = boot.saturating_sub(last.asked_at) < HEARD_AGE_MAX;
        is_fresh.then(|| Now {
            earliest: last.answered.estimate(boot),
            latest: last.asked.estimate(boot),
        })
    }
}

/// After so long the authority is asked again, so that a clock that was set or held is noticed.
const HEARD_AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_is_between_what_was_asked_and_what_was_answered() {
        let heard = Heard::default();
        assert_eq!(heard.now(SECOND), None);
        heard.hear(StoreTime::from_ms(5_000), SECOND, SECOND * 2);
        let now = heard.now(SECOND * 4).unwrap();
        assert_eq!((now.earliest.as_ms(), now.latest.as_ms()), (7_000, 8_000));
    }

    #[test]
    fn an_old_reading_tells_nothing() {
        let heard = Heard::default();
        heard.hear(StoreTime::from_ms(5_000), SECOND, SECOND);
        assert_eq!(heard.now(SECOND + HEARD_AGE_MAX), None);
    }
}
