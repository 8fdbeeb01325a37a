//! The highest time that this node was told: what it is told next is not earlier.

use std::sync::{Mutex, PoisonError};

use crate::clock::StoreTime;
use crate::record::Token;

/// A time, and the epoch that it belongs to: whoever trusts the clock again begins a new one.
#[derive(Debug, Default)]
pub(super) struct Floor(Mutex<(i64, i64)>);

impl Floor {
    /// Epoch and time.
    pub(super) fn parts(&self) -> (i64, i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raise(&self, epoch: i64, now: StoreTime) {
        let mut floor = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = if floor.0 == epoch { floor.1 } else { i64::MIN };
        *floor = (epoch, kept.max(now.as_ms()));
    }
}

/// A new epoch: random, so that none comes again, whatever became of the call that began another. The doubles
/// of Lua hold it exactly.
pub(super) fn epoch() -> i64 {
    let [first, second, third, fourth, fifth, sixth, ..] = *Token::random().as_bytes();
    i64::from_be_bytes([0, 0, first, second, third, fourth, fifth, sixth])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_rises_within_its_epoch_and_falls_with_a_new_one() {
        let floor = Floor::default();
        floor.raise(0, StoreTime::from_ms(50));
        floor.raise(0, StoreTime::from_ms(20));
        assert_eq!(floor.parts(), (0, 50));
        floor.raise(1, StoreTime::from_ms(20));
        assert_eq!(floor.parts(), (1, 20));
    }
}
