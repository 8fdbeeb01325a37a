//! Whether the store answers, and how long its calls take. Says so when it stops answering, and when it is back.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tracing::{error, info};

use super::latency::{Calls, StoreCallLatency};
use crate::clock::as_ms;
use crate::store::{Fault, StoreError};

/// The calls of the store since the engine started.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    pub(crate) claim: Calls,
    pub(crate) load: Calls,
    pub(crate) swap: Calls,
    pub(crate) renew: Calls,
    pub(crate) scan: Calls,
    pub(crate) sweep: Calls,
    is_down: AtomicBool,
    /// When the store stopped answering, on this node's clock, in milliseconds.
    down_at_ms: AtomicU64,
}

impl StoreHealth {
    /// False from a call that found the store unavailable until the next call that the store answered.
    pub(crate) fn is_up(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }

    pub(crate) fn latencies(&self) -> Vec<StoreCallLatency> {
        vec![
            self.claim.snapshot("claim"),
            self.load.snapshot("load"),
            self.swap.snapshot("swap"),
            self.renew.snapshot("renew"),
            self.scan.snapshot("scan"),
            self.sweep.snapshot("sweep"),
        ]
    }

    /// Takes note of a call that was sent at `asked_at` and has ended at `now`, both on this node's clock.
    pub(crate) fn ended<T>(
        &self,
        calls: &Calls,
        answer: &Result<T, Fault>,
        asked_at: Duration,
        now: Duration,
    ) {
        calls.record(now.saturating_sub(asked_at), answer.is_err());
        match answer {
            Ok(_) => self.up(now),
            Err(fault) => match fault.error() {
                error @ (StoreError::Unavailable(_) | StoreError::Closed) => self.down(error, now),
                // The store is there, and will not do this one thing now.
                StoreError::Busy | StoreError::Refused(_) | StoreError::Unreadable(_) => {}
            },
        }
    }

    fn up(&self, now: Duration) {
        // Read first: a write would take the cache line from the other threads at every call.
        if self.is_down.load(Ordering::Relaxed) && self.is_down.swap(false, Ordering::Relaxed) {
            let down_ms = now_ms(now).saturating_sub(self.down_at_ms.load(Ordering::Relaxed));
            info!(down_ms, "the store answers again");
        }
    }

    fn down(&self, error: &StoreError, now: Duration) {
        if !self.is_down.swap(true, Ordering::Relaxed) {
            self.down_at_ms.store(now_ms(now), Ordering::Relaxed);
            error!(error = chain(error), "the store does not answer");
        }
    }
}

fn now_ms(now: Duration) -> u64 {
    as_ms(now).unsigned_abs()
}

/// The error and its causes. Only for errors that say why the store cannot be reached: those about the content of
/// a record could quote it.
fn chain(error: &StoreError) -> String {
    let (mut told, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}
