//! The store's time as this node knows it: it does not run backward, and a jump of it is noticed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, Reading, StoreTime};

/// What this node makes of the times that it is told.
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    /// The clock jumped: the other nodes must be told.
    pub(crate) jumped: Notify,
}

#[derive(Clone, Copy)]
struct Known {
    /// How often someone has confirmed the clock; what was known before the last time is forgotten.
    confirmed: i64,
    highest: i64,
    reading: Option<Reading>,
    jumped: bool,
    /// How many jumps were seen.
    jumps: u32,
    /// When, on this node's clock, an answer last came held.
    held_at: Option<Duration>,
    /// Until then, on this node's clock, someone else may yet tell of a jump that we did not see.
    doubted_until: Option<Duration>,
}

/// What a statement answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) now: StoreTime,
    pub(crate) clock_held: bool,
    pub(crate) confirmed: i64,
}

/// What this node can say of the clock.
#[cfg(feature = "postgres")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witness {
    /// As [`Time::known`].
    pub(crate) known: (i64, i64),
    pub(crate) jumped: bool,
    pub(crate) plausible: i64,
    pub(crate) trusts: bool,
}

impl Time {
    /// A clock that was confirmed so often.
    pub(crate) fn new(clock: Arc<dyn Clock>, confirmed: i64) -> Self {
        let known = Mutex::new(Known::new(confirmed, 0));
        Self { clock, known, jumped: Notify::new() }
    }

    /// Whether this node saw a jump that the server may not know of.
    #[cfg(feature = "redis")]
    pub(crate) fn has_jumped(&self) -> bool {
        self.lock().jumped
    }

    /// All nodes were told of the jump: what was asked before that is held.
    #[cfg(feature = "redis")]
    pub(crate) fn has_told(&self) {
        let boot = self.clock.boot();
        let mut known = self.lock();
        known.jumped = false;
        known.held_at = Some(boot);
    }

    /// Takes note of an answer that was asked for at `asked_at`; the clock is held in it if it jumped.
    pub(crate) fn tell(&self, mut told: Told, asked_at: Duration) -> Told {
        let boot = self.clock.boot();
        let mut known = self.lock();
        if told.confirmed > known.confirmed {
            *known = Known::new(told.confirmed, told.now.as_ms());
        }
        if told.confirmed < known.confirmed {
            return Told { clock_held: true, ..told };
        }
        if told.clock_held {
            known.held_at = Some(boot);
            known.jumped = false;
        } else if known.held_at.is_some_and(|held_at| asked_at < held_at) {
            // It may have been read before the clock was held, though it comes after.
            return Told { clock_held: true, ..told };
        } else if known
            .reading
            .is_some_and(|last| told.now.since_ms(last.estimate(boot)) > CLOCK_JUMP_MS)
        {
            known.jumped = true;
            known.jumps = known.jumps.wrapping_add(1);
            self.jumped.notify_one();
        }
        known.reading = Some(Reading::new(told.now, asked_at));
        known.highest = known.highest.max(told.now.as_ms());
        told.clock_held |= known.is_doubtful(boot);
        told
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For stores of many nodes.
#[cfg(any(feature = "postgres", feature = "redis"))]
impl Time {
    /// As this node starts, the clock is `ahead_ms` after the last beat of any node. Far ahead, all nodes have
    /// rested, or it has jumped and those that saw it are about to say so: they are waited for.
    pub(crate) fn starts(&self, ahead_ms: i64) {
        if ahead_ms > CLOCK_JUMP_MS {
            self.lock().doubted_until = Some(self.clock.boot() + DOUBTED_FOR);
        }
    }

    pub(crate) fn boot(&self) -> Duration {
        self.clock.boot()
    }

    /// The highest time that was told here, and since when that counts.
    pub(crate) fn known(&self) -> (i64, i64) {
        let known = self.lock();
        (known.confirmed, known.highest)
    }

    /// The latest time that can be true now: the last reading and what passed here since, with the margin
    /// that is no jump. Everything is possible before the first reading.
    pub(crate) fn plausible(&self) -> i64 {
        let boot = self.clock.boot();
        self.lock().plausible(boot)
    }

    /// What is said in a beat, all of the same moment.
    #[cfg(feature = "postgres")]
    pub(crate) fn witness(&self) -> Witness {
        let boot = self.clock.boot();
        let known = *self.lock();
        Witness {
            known: (known.confirmed, known.highest),
            jumped: known.jumped,
            plausible: known.plausible(boot),
            trusts: !known.is_doubtful(boot),
        }
    }

    /// Whether nothing may expire here, whatever the server says.
    pub(crate) fn is_doubtful(&self) -> bool {
        let known = *self.lock();
        known.jumped || known.doubted_until.is_some_and(|until| self.clock.boot() < until)
    }

    /// A part of the store holds the clock: what was asked before that is held.
    #[cfg(feature = "redis")]
    pub(crate) fn is_held_in_part(&self) {
        let boot = self.clock.boot();
        self.lock().held_at = Some(boot);
    }

    /// How many jumps were seen.
    #[cfg(feature = "redis")]
    pub(crate) fn jumps(&self) -> u32 {
        self.lock().jumps
    }

    /// It jumped, as others know.
    #[cfg(feature = "redis")]
    pub(crate) fn accuse(&self) {
        self.lock().jumped = true;
    }

    /// The first so many jumps were none.
    #[cfg(feature = "redis")]
    pub(crate) fn acquit(&self, jumps: u32) {
        let mut known = self.lock();
        known.jumped &= known.jumps != jumps;
    }
}

impl Known {
    const fn new(confirmed: i64, highest: i64) -> Self {
        let (reading, held_at, doubted_until) = (None, None, None);
        Self { confirmed, highest, reading, jumped: false, jumps: 0, held_at, doubted_until }
    }

    #[cfg(any(feature = "postgres", feature = "redis"))]
    fn plausible(&self, boot: Duration) -> i64 {
        let latest = |reading: Reading| reading.estimate(boot).plus_ms(CLOCK_JUMP_MS).as_ms();
        self.reading.map_or(i64::MAX, latest)
    }

    fn is_doubtful(&self, boot: Duration) -> bool {
        self.jumped || self.doubted_until.is_some_and(|until| boot < until)
    }
}

const CLOCK_JUMP_MS: i64 = 60_000;
/// How long a node that starts waits for others to tell of a jump: some beats of theirs.
#[cfg(any(feature = "postgres", feature = "redis"))]
const DOUBTED_FOR: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    const DAY_MS: i64 = 86_400_000;
    const ASKED_AT: Duration = Duration::from_secs(1);

    fn told(ms: i64, clock_held: bool) -> Told {
        Told { now: StoreTime::from_ms(ms), clock_held, confirmed: 0 }
    }

    // threat B6: it was read before the clock was held, and waited somewhere.
    #[test]
    fn an_answer_that_was_asked_for_before_the_clock_was_held_is_held() {
        let time = Time::new(Arc::new(SystemClock), 0);
        assert!(time.tell(told(DAY_MS, true), ASKED_AT).clock_held);
        assert!(time.tell(told(DAY_MS, false), ASKED_AT).clock_held);
        let later = SystemClock.boot() + Duration::from_secs(1);
        assert!(!time.tell(told(DAY_MS, false), later).clock_held, "someone has confirmed it");
    }

    // threat B6
    #[test]
    fn an_answer_that_was_asked_for_before_we_told_of_a_jump_is_held() {
        let time = Time::new(Arc::new(SystemClock), 0);
        time.tell(told(0, false), SystemClock.boot());
        assert!(time.tell(told(DAY_MS, false), SystemClock.boot()).clock_held);
        assert!(time.has_jumped());
        time.has_told();
        assert!(time.tell(told(DAY_MS, false), ASKED_AT).clock_held);
        assert!(!time.has_jumped());
    }

    #[test]
    fn an_answer_from_before_the_clock_was_confirmed_is_held() {
        let time = Time::new(Arc::new(SystemClock), 1);
        let boot = SystemClock.boot();
        assert!(!time.tell(Told { confirmed: 1, ..told(0, false) }, boot).clock_held);
        assert!(time.tell(told(DAY_MS, false), boot).clock_held);
        assert!(!time.has_jumped());
    }
}
