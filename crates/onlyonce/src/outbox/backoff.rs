//! Pauses that double.

use std::time::Duration;

use tokio::time::Instant;

/// When to try again after nothing came of the last tries.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    max: Duration,
    /// The pauses since the last success.
    pauses: u32,
    until: Instant,
}

impl Backoff {
    /// No pause yet.
    pub(super) fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, pauses: 0, until: Instant::now() }
    }

    /// Pauses, twice as long as the last time. During a pause it changes nothing: of many failures at once, one counts.
    pub(super) fn pause(&mut self) {
        self.pause_at_most(self.max);
    }

    /// The same, with another longest pause.
    pub(super) fn pause_at_most(&mut self, max: Duration) {
        let now = Instant::now();
        if now >= self.until {
            let factor = 2_u32.saturating_pow(self.pauses);
            self.until = now + self.first.saturating_mul(factor).min(max);
            self.pauses = self.pauses.saturating_add(1);
        }
    }

    /// Ends the pause; the next one is short.
    pub(super) fn reset(&mut self) {
        (self.pauses, self.until) = (0, Instant::now());
    }

    /// Whether there was a pause and no success since.
    pub(super) fn is_active(&self) -> bool {
        self.pauses > 0
    }

    /// The pauses since the last success.
    pub(super) fn pauses(&self) -> u32 {
        self.pauses
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(350));
        for expected in [100, 200, 350, 350, 350] {
            backoff.pause();
            backoff.pause();
            assert_eq!(backoff.until() - Instant::now(), ms(expected));
            tokio::time::advance(ms(expected)).await;
        }
        backoff.reset();
        assert!(!backoff.is_active());
        backoff.pause();
        assert_eq!(backoff.until() - Instant::now(), ms(100));
    }
}
