//! What time it is in DynamoDB, which has no clock to ask.
//!
//! 1. Every answer has a `Date`, in whole seconds. At some moment between the sending of the call and its answer the
//!    server's clock was within that second: this bounds how far the server's clock is ahead of this node's boot clock.
//! 2. Of what the bounds allow the earliest is taken: the time that is told is never ahead of the server's, and behind
//!    it by at most a second and a round trip. Each answer narrows it.
//! 3. Between answers, the boot clock carries it on. It does not run backward for less than [`STEP_MS_MAX`]: such
//!    differences are those between the machines that answer.
//! 4. A `Date` that is earlier by more is not believed, because a single wrong one would end records before their time. If
//!    all answers of [`STEP_WAIT`] agree that the clock was set back, it was. A later one is believed at once: what is written
//!    by it only lives longer, and a machine that stood still must not write by the time before that.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{StoreTime, as_ms};

/// The time of the server, as this node knows it.
#[derive(Debug, Default)]
pub(super) struct ServerTime(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// How many milliseconds the server's clock is ahead of the boot clock; `None` before the first answer.
    ahead_ms: Option<i64>,
    /// The last time that was told.
    told_ms: i64,
    /// Answers without an exception that are far behind: since when on the boot clock, and how many.
    step: Option<(Duration, usize)>,
}

impl ServerTime {
    /// A call that was sent at `sent` was answered at `received`, both on the boot clock, with this `Date`.
    pub(super) fn heard(&self, date_ms: i64, sent: Duration, received: Duration) {
        let (low, high) = (date_ms - as_ms(received), date_ms + GRAIN_MS - as_ms(sent));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ahead) = known.ahead_ms else {
            known.ahead_ms = Some(low);
            return;
        };
        let nearest = ahead.clamp(low, high.max(low));
        if known.is_believed(nearest - ahead, received) {
            (known.ahead_ms, known.step) = (Some(nearest), None);
        }
    }

    /// Whether an answer has told it.
    pub(super) fn is_known(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ahead_ms.is_some()
    }

    /// The server's time when the boot clock says `boot`.
    pub(super) fn now(&self, boot: Duration) -> StoreTime {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = known.ahead_ms.unwrap_or_default() + as_ms(boot);
        if now_ms > known.told_ms || now_ms < known.told_ms - STEP_MS_MAX {
            known.told_ms = now_ms;
        }
        StoreTime::from_ms(known.told_ms)
    }
}

impl Known {
    /// Whether the clock is believed to be ahead by this much.
    fn is_believed(&mut self, ahead_ms: i64, received: Duration) -> bool {
        if ahead_ms >= -STEP_MS_MAX {
            return true;
        }
        let (since, answers) = self.step.get_or_insert((received, 0));
        *answers += 1;
        *answers >= STEP_ANSWERS && received.saturating_sub(*since) >= STEP_WAIT
    }
}

/// A `Date` is in whole seconds.
const GRAIN_MS: i64 = 1_000;
/// A time that is earlier by more than this is that of a clock that was set back, or a wrong one.
const STEP_MS_MAX: i64 = 5_000;
/// So many answers, for so long, must agree that the clock was set back.
const STEP_ANSWERS: usize = 10;
const STEP_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_is_never_ahead_of_the_server_and_at_most_a_second_and_a_round_trip_behind() {
        for offset in (0..1_000).step_by(37) {
            let time = ServerTime::default();
            // The server's clock is at 5,000,000 + offset when the boot clock is at 0.
            let server = |boot: u64| 5_000_000 + offset + boot as i64;
            for boot in (0..4_000).step_by(130) {
                let answered = server(boot + 20);
                time.heard(answered / 1000 * 1000, at(boot), at(boot + 40));
                let behind = server(boot + 40) - time.now(at(boot + 40)).as_ms();
                assert!((0..=1_040).contains(&behind), "{behind} behind");
            }
            // A second full of answers has seen the date change: what is left is the time between two answers.
            let behind = server(4_000) - time.now(at(4_000)).as_ms();
            assert!(behind <= 170, "{behind} behind");
        }
    }

    #[test]
    fn it_runs_on_between_answers_and_not_backward() {
        let time = ServerTime::default();
        time.heard(1_000_000, at(0), at(10));
        assert_eq!(time.now(at(510)).as_ms(), 1_000_500);
        // A machine whose clock is two seconds behind.
        time.heard(998_000, at(510), at(520));
        assert_eq!(time.now(at(520)).as_ms(), 1_000_500);
    }

    #[test]
    fn a_single_date_that_is_too_early_is_not_believed_and_a_clock_that_was_set_back_is() {
        let time = ServerTime::default();
        time.heard(10_000_000, at(0), at(10));
        let steady = |boot: u64| 10_000_000 + boot as i64 / 1_000 * 1_000;
        for boot in (1_000..100_000).step_by(1_000) {
            // Every second answer is wrong.
            let wrong = if boot % 2_000 == 0 { HOUR_MS } else { 0 };
            time.heard(steady(boot) - wrong, at(boot), at(boot + 10));
            let off = time.now(at(boot + 10)).as_ms() - steady(boot);
            assert!((-2_000..2_000).contains(&off), "{off} off");
        }
        for boot in (100_000..170_000).step_by(1_000) {
            time.heard(steady(boot) - HOUR_MS, at(boot), at(boot + 10));
        }
        let off = time.now(at(170_000)).as_ms() - steady(170_000) + HOUR_MS;
        assert!((-2_000..2_000).contains(&off), "{off} off");
    }

    /// The boot clock of a machine that was paused from outside has not gone on.
    #[test]
    fn a_later_date_is_believed_at_once() {
        let time = ServerTime::default();
        time.heard(10_000_000, at(0), at(10));
        time.heard(10_000_000 + HOUR_MS, at(20), at(30));
        assert!(time.now(at(30)).as_ms() >= 10_000_000 + HOUR_MS);
    }

    const HOUR_MS: i64 = 3_600_000;
}
