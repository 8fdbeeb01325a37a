//! What to do after an attempt: a pure function of its answer, the attempts before it, and the time.

use std::time::Duration;

use http::StatusCode;

use super::outcome::{Doubt, Stop};
use super::pause::Pause;
use super::reading::{Again, Meaning, Refusal};
use super::retries::Settings;
use crate::clock::StoreTime;

/// The state of an operation between its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// When the first attempt was, by the wall clock: a server forgets keys by the calendar.
    pub(crate) first_sent: StoreTime,
    /// When the deadline is over, by the boot clock.
    pub(crate) ends_at: Duration,
    /// How often the operation was sent.
    pub(crate) sends: u32,
    /// How many of these count as attempts.
    pub(crate) attempts: u32,
    /// How often in a row the server said that the operation still runs.
    pub(crate) questions: u32,
    /// How often the server said that it does not know the outcome itself.
    pub(crate) held: u32,
    pub(crate) redirects: u32,
    /// Whether the one free attempt was used: an attempt that was proved never to have been sent does not count.
    pub(crate) free_is_used: bool,
    /// Why the operation may have happened, if it may.
    pub(crate) doubt: Option<Doubt>,
    /// The status that says that the operation happened, while its result is read at another URL.
    pub(crate) done: Option<StatusCode>,
    /// Whether that status came from the server's record.
    pub(crate) is_replay: bool,
    /// How long the server keeps the key, if it was configured or the server said so.
    pub(crate) window: Option<Duration>,
}

impl Course {
    /// Before the first attempt.
    pub(crate) fn new(first_sent: StoreTime, ends_at: Duration) -> Self {
        Self {
            first_sent,
            ends_at,
            sends: 0,
            attempts: 0,
            questions: 0,
            held: 0,
            redirects: 0,
            free_is_used: false,
            doubt: None,
            done: None,
            is_replay: false,
            window: None,
        }
    }

    /// The state after one more attempt with this meaning.
    pub(crate) fn after(self, meaning: &Meaning) -> Self {
        let sends = self.sends.saturating_add(1);
        let Meaning::Again(again) = meaning else {
            return Self { sends, attempts: self.attempts.saturating_add(1), ..self };
        };
        let is_free = again.is_unsent && !self.free_is_used;
        let is_counted = !is_free && !again.is_question();
        let is_held = again.doubt == Some(Doubt::HeldUnknown);
        Self {
            sends,
            attempts: self.attempts.saturating_add(is_counted.into()),
            questions: self.questions.saturating_add(again.is_question().into()),
            held: self.held.saturating_add(is_held.into()),
            free_is_used: self.free_is_used || is_free,
            doubt: again.doubt.or(self.doubt),
            ..self
        }
    }
}

/// The clocks, the budget and the random number at the moment of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) wall: StoreTime,
    pub(crate) boot: Duration,
    pub(crate) budget_allows: bool,
    pub(crate) random: u64,
    /// How long the server keeps keys.
    pub(crate) window: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait, then send again.
    Wait(Duration),
    /// Stop: there is an outcome, or there will be none.
    End(End),
}

/// How the operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Success,
    Done(StatusCode),
    Rejected,
    Unknown(Doubt, Stop),
    NotThrough(Stop),
}

/// Decides what follows the last attempt, which `course` already counts.
pub(crate) fn decide(meaning: &Meaning, course: &Course, settings: &Settings, at: &Moment) -> Next {
    let end = match (meaning, course.doubt) {
        (Meaning::Success, _) => End::Success,
        (Meaning::Done(status), _) => End::Done(*status),
        (Meaning::Refused(Refusal::OfAttempt(stop)), Some(doubt)) => End::Unknown(doubt, *stop),
        (Meaning::Refused(_), _) => End::Rejected,
        (Meaning::Closed(doubt), _) => End::Unknown(*doubt, Stop::Closed),
        (Meaning::Again(again), _) => match next_wait(again, course, settings, at) {
            Ok(wait) => return Next::Wait(wait),
            Err(stop) => gave_up(course, stop),
        },
    };
    Next::End(match (end, course.done) {
        (End::Success, _) | (_, None) => end,
        (_, Some(status)) => End::Done(status),
    })
}

/// The end of an operation that is not sent again.
pub(crate) fn gave_up(course: &Course, stop: Stop) -> End {
    match course.doubt {
        Some(doubt) => End::Unknown(doubt, stop),
        None => End::NotThrough(stop),
    }
}

fn next_wait(
    again: &Again,
    course: &Course,
    settings: &Settings,
    at: &Moment,
) -> Result<Duration, Stop> {
    let is_used_up = course.attempts >= settings.attempts_max || course.questions >= QUESTIONS_MAX;
    let wait = wait(again.pause, course, settings, at.random).ok_or(Stop::Told)?;
    let sent_at = at.wall.plus(wait);
    match () {
        () if is_used_up => Err(Stop::Attempts),
        () if course.held >= HELD_MAX => Err(Stop::Held),
        () if !at.budget_allows => Err(Stop::Budget),
        () if at.boot.saturating_add(wait) >= course.ends_at => Err(Stop::Deadline),
        () if is_past_window(course.first_sent, sent_at, at.window, settings) => Err(Stop::Window),
        () => Ok(wait),
    }
}

/// Full jitter: anything from nothing to the backoff, on top of what the server asks for.
fn wait(pause: Pause, course: &Course, settings: &Settings, random: u64) -> Option<Duration> {
    let jitter = || {
        let most_ms = u64::try_from(backoff(course, settings).as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(scaled(random, most_ms))
    };
    match pause {
        Pause::Backoff => Some(jitter()),
        Pause::AtLeast(least) => Some(least.saturating_add(jitter())),
        Pause::Exactly(wait) => Some(wait),
        Pause::Never => None,
    }
}

/// The longest wait before the next attempt: it doubles with each, up to its bound.
pub(crate) fn backoff(course: &Course, settings: &Settings) -> Duration {
    let waits = course.attempts + course.questions + u32::from(course.free_is_used);
    let doublings = waits.saturating_sub(1).min(DOUBLINGS_MAX);
    settings.backoff.saturating_mul(1 << doublings).min(settings.backoff_max)
}

/// A number from 0 to `most`, both included.
fn scaled(random: u64, most: u64) -> u64 {
    let wide = u128::from(random) * (u128::from(most) + 1);
    u64::try_from(wide >> 64).unwrap_or(most)
}

/// Whether a server that keeps keys for `window` may have forgotten one that was first sent at
/// `first_sent` when a copy sent at `sent_at` arrives. A first attempt that lies in the future was noted
/// by a clock that was wrong, and so nothing is known of its age.
pub(crate) fn is_past_window(
    first_sent: StoreTime,
    sent_at: StoreTime,
    window: Duration,
    settings: &Settings,
) -> bool {
    let margin = (window / 10).max(settings.attempt_timeout.min(window / 2));
    let age_ms = sent_at.since_ms(first_sent);
    age_ms < -CLOCK_SLACK_MS || age_ms > crate::clock::as_ms(window.saturating_sub(margin))
}

/// How often a server that says that the operation still runs is asked again; the deadline usually comes first.
const QUESTIONS_MAX: u32 = 1000;
/// How often a server that does not know the outcome itself is asked again: a retry may make it reconcile, and after
/// that only an operator can resolve the outcome.
const HELD_MAX: u32 = 2;
const DOUBLINGS_MAX: u32 = 20;
const CLOCK_SLACK_MS: i64 = 60_000;

#[cfg(test)]
mod tests;
