//! The server's time as this node knows it: it does not run backward, and a jump of it is noticed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{CLOCK_JUMP_MS, Clock, Reading, StoreTime};

/// One per store.
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    known: Mutex<Known>,
    /// The clock jumped: the other nodes must be told.
    pub(super) jumped: Notify,
}

#[derive(Clone, Copy)]
struct Known {
    /// How often someone has confirmed the clock; what was known before the last time is forgotten.
    confirmed: i64,
    highest: i64,
    reading: Option<Reading>,
    jumped: bool,
    /// Until then, on this node's clock, someone else may yet tell of a jump that we did not see.
    doubted_until: Option<Duration>,
}

/// What a statement answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) now: StoreTime,
    pub(super) clock_held: bool,
    pub(super) confirmed: i64,
}

impl Time {
    /// A clock that was confirmed so often.
    pub(super) fn new(clock: Arc<dyn Clock>, confirmed: i64) -> Self {
        let known =
            Known { confirmed, highest: 0, reading: None, jumped: false, doubted_until: None };
        Self { clock, known: Mutex::new(known), jumped: Notify::new() }
    }

    /// As this node starts, the clock is `ahead_ms` after the last beat of any node. Far ahead, all nodes have
    /// rested, or it has jumped and those that saw it are about to say so: they are waited for.
    pub(super) fn starts(&self, ahead_ms: i64) {
        if ahead_ms > CLOCK_JUMP_MS {
            self.lock().doubted_until = Some(self.clock.boot() + DOUBTED_FOR);
        }
    }

    pub(super) fn boot(&self) -> Duration {
        self.clock.boot()
    }

    /// What every statement is given: the highest time that was told here, and since when that counts.
    #[cfg(feature = "postgres")]
    pub(super) fn known(&self) -> (i64, i64) {
        let known = self.lock();
        (known.confirmed, known.highest)
    }

    /// The latest time that can be true now: the last reading and what passed here since, with the margin
    /// that is no jump. Everything is possible before the first reading.
    pub(super) fn plausible(&self) -> i64 {
        let reading = self.lock().reading;
        let latest = |reading: Reading| reading.estimate(self.clock.boot()).plus_ms(CLOCK_JUMP_MS);
        reading.map_or(i64::MAX, |reading| latest(reading).as_ms())
    }

    /// Whether this node saw a jump that the server may not know of.
    pub(super) fn has_jumped(&self) -> bool {
        self.lock().jumped
    }

    /// All nodes were told of the jump.
    #[cfg(feature = "redis")]
    pub(super) fn has_told(&self) {
        self.lock().jumped = false;
    }

    /// Whether nothing may expire here, whatever the server says.
    pub(super) fn is_doubtful(&self) -> bool {
        let known = *self.lock();
        known.jumped || known.doubted_until.is_some_and(|until| self.clock.boot() < until)
    }

    /// Takes note of an answer that was asked for at `asked_at`; the clock is held in it if it jumped.
    pub(super) fn tell(&self, mut told: Told, asked_at: Duration) -> Told {
        let boot = self.clock.boot();
        let mut known = self.lock();
        if told.confirmed > known.confirmed {
            let confirmed = told.confirmed;
            let highest = told.now.as_ms();
            *known =
                Known { confirmed, highest, reading: None, jumped: false, doubted_until: None };
        }
        if told.confirmed < known.confirmed {
            return told;
        }
        if !told.clock_held && known.reading.is_some_and(|last| last.is_jump(told.now, boot)) {
            known.jumped = true;
            self.jumped.notify_one();
        }
        known.jumped &= !told.clock_held;
        known.reading = Some(Reading::new(told.now, asked_at));
        known.highest = known.highest.max(told.now.as_ms());
        told.clock_held |= known.is_doubtful(boot);
        told
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_doubtful(&self, boot: Duration) -> bool {
        self.jumped || self.doubted_until.is_some_and(|until| boot < until)
    }
}

/// How long a node that starts waits for others to tell of a jump: some beats of theirs.
const DOUBTED_FOR: Duration = Duration::from_secs(15);
