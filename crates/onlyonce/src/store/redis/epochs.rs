//! Times that belong to an epoch of the clock: whoever trusts it again begins a new one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, StoreTime};
use crate::record::Token;
use crate::store::time::{Time, Told};

/// What one kind of answers has told.
pub(super) struct Epochs {
    pub(super) time: Time,
    epoch: Mutex<Option<Epoch>>,
}

#[derive(Clone, Copy)]
struct Epoch {
    name: i64,
    /// How many this node has seen before it.
    number: i64,
    /// When, on this node's clock, it was first seen.
    since: Duration,
}

/// What an answer says of the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) now: StoreTime,
    pub(super) clock_held: bool,
    pub(super) epoch: i64,
}

impl Epochs {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { time: Time::new(clock, 0), epoch: Mutex::new(None) }
    }

    /// Whether nothing was told yet.
    pub(super) fn is_new(&self) -> bool {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// The name of the epoch that this node knows.
    pub(super) fn name(&self) -> i64 {
        let epoch = *self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        epoch.map_or(0, |epoch| epoch.name)
    }

    /// Takes note of an answer that was asked for at `asked_at`; whether the clock is held in it.
    ///
    /// Names have no order. One that is not ours is of a new epoch, unless it was asked for before ours was
    /// seen: that is of an old one. An answer that comes held says nothing of other slots, which may not have
    /// been told yet: it is no reading.
    pub(super) fn tell(&self, heard: Heard, asked_at: Duration) -> bool {
        if heard.clock_held {
            self.time.is_held_in_part();
            return true;
        }
        let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        let current = match *epoch {
            Some(ours) if ours.name == heard.epoch => ours,
            Some(ours) if asked_at < ours.since => return true,
            other => {
                let number = other.map_or(0, |before| before.number + 1);
                Epoch { name: heard.epoch, number, since: self.time.boot() }
            }
        };
        *epoch = Some(current);
        let confirmed = current.number;
        let told = Told { now: heard.now, clock_held: false, confirmed };
        self.time.tell(told, asked_at).clock_held
    }
}

/// The name of a new epoch: random, so that none comes again, whatever became of the call that began another.
/// The doubles of Lua hold it exactly.
pub(super) fn name() -> i64 {
    let [first, second, third, fourth, fifth, sixth, ..] = *Token::random().as_bytes();
    i64::from_be_bytes([0, 0, first, second, third, fourth, fifth, sixth])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn heard(epoch: i64, ms: i64, clock_held: bool) -> Heard {
        Heard { now: StoreTime::from_ms(ms), clock_held, epoch }
    }

    #[test]
    fn the_highest_time_rises_within_its_epoch_and_falls_with_a_new_one() {
        let epochs = Epochs::new(Arc::new(SystemClock));
        let highest = |epoch, ms| {
            epochs.tell(heard(epoch, ms, false), epochs.time.boot());
            epochs.time.known().1
        };
        assert_eq!((highest(0, 50), highest(0, 20)), (50, 50));
        assert_eq!((highest(7, 20), epochs.name()), (20, 7));
    }

    // threat B6: one slot was told already, and another not yet.
    #[test]
    fn a_slot_that_is_held_does_not_hide_the_jump_of_another() {
        for early in [true, false] {
            let epochs = Epochs::new(Arc::new(SystemClock));
            epochs.tell(heard(0, 0, false), epochs.time.boot());
            if early {
                assert!(epochs.tell(heard(0, 86_400_000, false), epochs.time.boot()));
            }
            assert!(epochs.tell(heard(0, 86_400_000, true), epochs.time.boot()));
            assert!(epochs.tell(heard(0, 86_400_000, false), Duration::ZERO), "asked before that");
            let later = epochs.time.boot() + Duration::from_secs(1);
            assert!(epochs.tell(heard(0, 86_400_000, false), later), "it was not told yet");
            assert!(epochs.time.has_jumped());
        }
    }

    #[test]
    fn an_answer_of_an_epoch_that_is_over_is_held_and_changes_nothing() {
        let epochs = Epochs::new(Arc::new(SystemClock));
        let early = epochs.time.boot();
        epochs.tell(heard(0, 90, false), early);
        let later = Duration::from_nanos(1);
        assert!(!epochs.tell(heard(7, 20, false), epochs.time.boot() + later));
        assert!(epochs.tell(heard(0, 90, false), early), "it was asked before");
        assert!(epochs.tell(heard(0, 90, true), epochs.time.boot() + later), "a slot still held");
        assert_eq!((epochs.name(), epochs.time.known().1), (7, 20));
        assert!(!epochs.tell(heard(0, 10, false), epochs.time.boot() + later), "all was flushed");
        assert_eq!(epochs.name(), 0);
    }
}
