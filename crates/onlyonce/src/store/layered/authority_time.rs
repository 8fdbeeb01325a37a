//! The authority's time between two of its answers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Reading, StoreTime};

/// Estimates the authority's time from its last answer and this node's boot clock.
#[derive(Debug, Default)]
pub(super) struct AuthorityTime(Mutex<Option<LastAnswer>>);

#[derive(Clone, Copy, Debug)]
struct LastAnswer {
    /// The authority read its clock at some moment between these two: when it was asked, and when it had answered.
    asked: Reading,
    answered: Reading,
    asked_at: Duration,
}

/// The authority's time now lies between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) earliest: StoreTime,
    pub(super) latest: StoreTime,
}

impl AuthorityTime {
    /// The authority, asked at `asked_at`, has told its time `now` when this node's clock says `boot`.
    pub(super) fn observe(&self, now: StoreTime, asked_at: Duration, boot: Duration) {
        let (asked, answered) = (Reading::new(now, asked_at), Reading::new(now, boot));
        let last = LastAnswer { asked, answered, asked_at };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    /// `None` if the authority has not answered yet, or not for [`ANSWER_AGE_MAX`].
    pub(super) fn now(&self, boot: Duration) -> Option<Estimate> {
        let last = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        let is_fresh = boot.saturating_sub(last.asked_at) < ANSWER_AGE_MAX;
        is_fresh.then(|| Estimate {
            earliest: last.answered.estimate(boot),
            latest: last.asked.estimate(boot),
        })
    }
}

/// After so long the authority is asked again, so that a clock that was set is noticed.
const ANSWER_AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_is_counted_from_between_the_question_and_the_answer() {
        let time = AuthorityTime::default();
        assert_eq!(time.now(SECOND), None);
        time.observe(StoreTime::from_ms(5_000), SECOND, SECOND * 2);
        let now = time.now(SECOND * 4).unwrap();
        assert_eq!((now.earliest.as_ms(), now.latest.as_ms()), (7_000, 8_000));
    }

    #[test]
    fn an_old_answer_tells_nothing() {
        let time = AuthorityTime::default();
        time.observe(StoreTime::from_ms(5_000), SECOND, SECOND);
        assert_eq!(time.now(SECOND + ANSWER_AGE_MAX), None);
    }
}
