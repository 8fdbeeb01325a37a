//! A bounded queue with one consumer, which takes everything that has queued at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Queue<T> {
    inner: Mutex<Inner<T>>,
    arrived: Condvar,
    max: usize,
}

struct Inner<T> {
    items: VecDeque<T>,
    closed: bool,
    /// The consumer waits and must be notified.
    sleeping: bool,
    /// The consumer shall return from its wait, though there is no item.
    nudged: bool,
}

/// Why a push was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Closed,
}

impl<T> Queue<T> {
    pub(super) fn new(max: usize) -> Self {
        let inner = Inner { items: VecDeque::new(), closed: false, sleeping: false, nudged: false };
        Self { inner: Mutex::new(inner), arrived: Condvar::new(), max }
    }

    pub(super) fn push(&self, item: T) -> Result<(), Refusal> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(Refusal::Closed);
        }
        if inner.items.len() >= self.max {
            return Err(Refusal::Full);
        }
        inner.items.push_back(item);
        self.wake(inner);
        Ok(())
    }

    /// Ends the wait of the consumer, with or without items.
    pub(super) fn nudge(&self) {
        let mut inner = self.lock();
        inner.nudged = true;
        self.wake(inner);
    }

    /// Refuses further items. Those in the queue are still consumed.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        self.wake(inner);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Moves up to `max` items to `into`, and waits for the first if `wait` says so. Returns false once the queue is
    /// closed and empty.
    pub(super) fn take(&self, into: &mut Vec<T>, max: usize, wait: Wait) -> bool {
        let mut inner = self.lock();
        while inner.items.is_empty() && !inner.closed && !inner.nudged && wait != Wait::No {
            inner.sleeping = true;
            inner = match wait {
                Wait::AtMost(limit) => {
                    let waited = self.arrived.wait_timeout(inner, limit);
                    let (mut inner, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    inner.nudged |= timeout.timed_out();
                    inner
                }
                _ => self.arrived.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
            inner.sleeping = false;
        }
        inner.nudged = false;
        let count = inner.items.len().min(max);
        into.extend(inner.items.drain(..count));
        !(inner.closed && inner.items.is_empty())
    }

    fn wake(&self, inner: MutexGuard<'_, Inner<T>>) {
        let sleeping = inner.sleeping;
        drop(inner);
        if sleeping {
            self.arrived.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a consumer waits for the first item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_a_closed_one_still_gives_what_it_has() {
        let queue = Queue::new(2);
        assert_eq!(queue.push(1), Ok(()));
        assert_eq!(queue.push(2), Ok(()));
        assert_eq!(queue.push(3), Err(Refusal::Full));
        queue.close();
        assert_eq!(queue.push(4), Err(Refusal::Closed));
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken, 1, Wait::Forever));
        assert!(!queue.take(&mut taken, 1, Wait::Forever));
        assert_eq!(taken, [1, 2]);
    }

    #[test]
    fn a_nudge_ends_the_wait_without_an_item() {
        let queue = Queue::<u8>::new(1);
        queue.nudge();
        let mut taken = Vec::new();
        assert!(queue.take(&mut taken, 1, Wait::Forever));
        assert!(taken.is_empty());
    }
}
