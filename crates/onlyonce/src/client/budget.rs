//! The retry budget: a bucket of tokens that all operations of a client share, so that an outage does not
//! become a storm.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A bucket of tokens. A failed attempt takes one, a success gives back a tenth, and while no more than
/// half of them are left nothing is retried: each operation still has its first attempt.
///
/// A client without traffic gets one token back each second, so that it does not stay blocked.
///
/// ```
/// use std::time::Duration;
/// use onlyonce::client::Budget;
///
/// let budget = Budget::new();
/// for _ in 0..5 {
///     budget.note_failure(Duration::ZERO);
/// }
/// assert!(!budget.allows_retry(Duration::ZERO));
/// ```
#[derive(Debug)]
pub struct Budget {
    tokens_max: f64,
    per_success: f64,
    per_second: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    /// When tokens were last added, by a success or by time.
    filled_at: Duration,
}

impl Budget {
    /// Ten tokens, a tenth per success, and one per second without traffic.
    pub fn new() -> Self {
        Self::with(TOKENS_MAX, PER_SUCCESS, PER_SECOND)
    }

    /// `tokens_max` tokens, `per_success` back for each success, and `per_second` for each second without
    /// one. More of any is a larger storm after an outage.
    pub fn with(tokens_max: f64, per_success: f64, per_second: f64) -> Self {
        let bucket = Bucket { tokens: tokens_max, filled_at: Duration::ZERO };
        Self { tokens_max, per_success, per_second, bucket: Mutex::new(bucket) }
    }

    /// A budget that never refuses a retry, for tests.
    pub fn unlimited() -> Self {
        Self::with(f64::INFINITY, 0.0, 0.0)
    }

    /// Whether a retry may be sent, at this time of [`Clock::boot`](crate::clock::Clock::boot).
    pub fn allows_retry(&self, now: Duration) -> bool {
        self.is_above_half(self.bucket(now).tokens)
    }

    /// Notes a failed attempt of the kind that more load makes worse.
    pub fn note_failure(&self, now: Duration) {
        let mut bucket = self.bucket(now);
        bucket.tokens = (bucket.tokens - 1.0).max(0.0);
    }

    /// Notes a success of the usual traffic. A resumed operation does not count.
    pub fn note_success(&self, now: Duration) {
        let mut bucket = self.bucket(now);
        bucket.tokens = (bucket.tokens + self.per_success).min(self.tokens_max);
        bucket.filled_at = now;
    }

    /// Takes what it costs to take up an operation of an earlier process; false if retries must wait.
    #[cfg(feature = "client-journal")]
    pub(crate) fn takes_up(&self, now: Duration) -> bool {
        let mut bucket = self.bucket(now);
        let may = self.is_above_half(bucket.tokens);
        if may {
            bucket.tokens -= RESUME_TOKENS;
        }
        may
    }

    fn is_above_half(&self, tokens: f64) -> bool {
        tokens > self.tokens_max / 2.0 || self.tokens_max.is_infinite()
    }

    /// Adds the tokens for the seconds without a success.
    fn bucket(&self, now: Duration) -> std::sync::MutexGuard<'_, Bucket> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = now.saturating_sub(bucket.filled_at);
        if quiet >= QUIET {
            let tokens = bucket.tokens + quiet.as_secs_f64() * self.per_second;
            *bucket = Bucket { tokens: tokens.min(self.tokens_max), filled_at: now };
        }
        bucket
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

const TOKENS_MAX: f64 = 10.0;
const PER_SUCCESS: f64 = 0.1;
const PER_SECOND: f64 = 1.0;
/// Tokens are added by time after so long without a success.
const QUIET: Duration = Duration::from_secs(1);
/// Resumed operations may use half of the extra load, because no caller waits for them; retries may use the other half.
#[cfg(feature = "client-journal")]
const RESUME_TOKENS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;

    // R157
    #[test]
    fn retries_stop_when_half_of_the_tokens_are_gone() {
        let budget = Budget::new();
        for _ in 0..5 {
            assert!(budget.allows_retry(START));
            budget.note_failure(START);
        }
        assert!(!budget.allows_retry(START));
    }

    // R157
    #[test]
    fn ten_successes_allow_one_more_failure() {
        let budget = Budget::new();
        for _ in 0..5 {
            budget.note_failure(START);
        }
        for _ in 0..11 {
            budget.note_success(START);
        }
        assert!(budget.allows_retry(START));
        budget.note_failure(START);
        budget.note_failure(START);
        assert!(!budget.allows_retry(START));
    }

    #[test]
    fn a_client_without_traffic_is_not_stuck() {
        let budget = Budget::new();
        for _ in 0..20 {
            budget.note_failure(START);
        }
        assert!(!budget.allows_retry(Duration::from_secs(5)));
        assert!(budget.allows_retry(Duration::from_secs(6)));
    }

    #[test]
    fn traffic_gives_a_tenth_and_no_more() {
        let budget = Budget::new();
        for _ in 0..20 {
            budget.note_failure(START);
        }
        for tick in 1..=50 {
            budget.note_success(Duration::from_millis(500 * tick));
        }
        assert!(!budget.allows_retry(Duration::from_millis(25_000)));
    }

    #[cfg(feature = "client-journal")]
    #[test]
    fn what_an_earlier_process_left_costs_double() {
        let budget = Budget::new();
        assert!(budget.takes_up(START) && budget.takes_up(START) && budget.takes_up(START));
        assert!(!budget.takes_up(START));
    }

    #[test]
    fn an_unlimited_budget_never_refuses() {
        let budget = Budget::unlimited();
        for _ in 0..1000 {
            budget.note_failure(START);
        }
        assert!(budget.allows_retry(START));
    }
}
