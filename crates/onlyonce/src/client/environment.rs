//! The source of time and randomness, so that a test can control both.

use std::pin::Pin;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};

/// Where the client's time and randomness come from.
pub trait Environment: Clock {
    /// Ready after `wait` on the clock of [`Clock::boot`].
    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// 64 random bits.
    fn random(&self) -> u64;
}

impl Environment for SystemClock {
    fn sleep(&self, wait: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(wait))
    }

    /// Without randomness the longest wait is chosen.
    fn random(&self) -> u64 {
        getrandom::u64().unwrap_or(u64::MAX)
    }
}
