//! How long, how often, how much.

use std::time::Duration;

use crate::clock::as_ms;

/// The rules of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) lease: Duration,
    pub(super) attempts_max: u32,
    pub(super) attempt_max: Duration,
    pub(super) retry_pause: Duration,
}

impl Rules {
    pub(super) const DEFAULT: Self = Self {
        lease: Duration::from_secs(30),
        attempts_max: 20,
        attempt_max: Duration::from_secs(300),
        retry_pause: Duration::from_secs(1),
    };

    /// How long a call may still be on its way after its owner was taken for dead.
    pub(super) fn quiet_ms(&self) -> i64 {
        as_ms(self.lease.saturating_add(self.attempt_max))
    }

    /// The pause after so many attempts without a new point: it doubles, and between a half and all of it is waited, so that
    /// operations that failed together are not tried again together. `jitter` is between 0 and 1.
    pub(super) fn pause(&self, attempts: u32, jitter: f64) -> Duration {
        let factor = 2_u32.saturating_pow(attempts.saturating_sub(1).min(DOUBLINGS_MAX));
        let whole = self.retry_pause.saturating_mul(factor).min(RETRY_PAUSE_MAX);
        whole.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// Between 0 and 1, at random.
pub(super) fn jitter() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness nothing is wrong but the moment of the next attempt.
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 0.5,
    }
}

/// The longest pause between two attempts.
pub(super) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(600);
pub(super) const LEASE_MIN: Duration = Duration::from_secs(1);
pub(super) const LEASE_MAX: Duration = Duration::from_secs(3600);
/// Of a request, as JSON.
pub(super) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Of what a step remembers, as JSON.
pub(super) const VALUE_BYTES_MAX: usize = 64 << 10;
/// Of the name of a program or a step.
pub(super) const NAME_BYTES_MAX: usize = 200;
/// Steps of one operation.
pub(super) const POINTS_MAX: usize = 1_000;
/// Of a stored error.
pub(super) const ERROR_CHARS_MAX: usize = 1_000;
const DOUBLINGS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_up_to_the_longest() {
        let pause = |attempts, jitter| Rules::DEFAULT.pause(attempts, jitter).as_millis();
        assert_eq!([pause(1, 0.0), pause(1, 1.0), pause(3, 1.0)], [500, 1_000, 4_000]);
        assert_eq!([pause(40, 1.0), pause(u32::MAX, 0.0)], [600_000, 300_000]);
    }
}
