//! Writes that must reach the store: repeated for as long as the process lives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{error, warn};

use super::Inner;
use super::claim_guard::LiveClaim;
use crate::crash::{CrashPoint, crash_during};
use crate::engine::Write;
use crate::record::{Kept, NotKept, Response};
use crate::store::{Fault, Next, Seen, StoreError, Swap};

/// The result of an owner's last write.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The write is in the store. The response that retries will get, if the write was a final outcome.
    Done(Option<Arc<Response>>),
    /// The store did not take the answer, and its memory was needed: the outcome is marked unknown.
    GaveUp,
    /// Another owner has the record; this is the record that was seen.
    Fenced(Box<Seen>),
}

impl Inner {
    /// Repeats `write` until the store has answered. An outcome that cannot be written becomes unknown, never a
    /// release.
    pub(crate) async fn write_until_known(&self, claim: &LiveClaim, mut write: Write) -> Settled {
        let mut waiting: Option<Unsettled> = None;
        let mut pause = PAUSE_MIN;
        let mut gave_up = false;
        let mut is_told = false;
        loop {
            let swap = self.store.swap(claim.id, write.clone());
            let fault = match crash_during(CrashPoint::SettleSent, swap).await {
                Ok(Swap::Done(_)) if gave_up => return Settled::GaveUp,
                Ok(Swap::Done(_)) => return Settled::Done(answer(&write).cloned()),
                Ok(Swap::Stale(seen)) => return stale(claim, seen),
                Err(fault) => fault,
            };
            if !std::mem::replace(&mut is_told, true) {
                self.counters.settles_retried.one();
                warn!(operation = %claim.id, "the store did not take the outcome; retrying until it does");
            }
            if let Fault::NotDone(StoreError::Refused(_)) = fault {
                (write, gave_up) = weaker(claim, write);
            }
            // Only a write with a response body takes memory, and may be given up for it.
            let bytes = body_bytes(&write);
            if bytes > 0 && waiting.is_none() {
                waiting = Some(self.unsettled.enter(bytes));
            }
            tokio::select! {
                biased;
                () = given_up(waiting.as_ref()) => {
                    self.counters.unsettled.one();
                    error!(operation = %claim.id, "answer given up for lack of memory: its outcome becomes unknown");
                    let about = write.about.clone();
                    write = Write::mark_unknown(claim.token).with_about(about);
                    gave_up = true;
                }
                () = sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            }
        }
    }
}

/// Ends when the memory of this waiting answer is needed for newer ones.
async fn given_up(waiting: Option<&Unsettled>) {
    match waiting {
        Some(waiting) => waiting.must_give_up.notified().await,
        None => std::future::pending().await,
    }
}

/// The result of a stale write: fenced off, unless the record shows an earlier copy of this owner's own settle.
fn stale(claim: &LiveClaim, seen: Box<Seen>) -> Settled {
    let ours = seen.record.as_ref().filter(|record| record.token == claim.token);
    match ours.and_then(|record| record.response().cloned()) {
        Some(response) => Settled::Done(Some(response)),
        None => Settled::Fenced(seen),
    }
}

/// The response that `write` makes final.
fn answer(write: &Write) -> Option<&Arc<Response>> {
    match &write.next {
        Next::Completed { response, .. } => Some(response),
        _ => None,
    }
}

/// The next write after the store refused this one for its content: a settle without its body, then unknown. True
/// if the outcome is given up.
fn weaker(claim: &LiveClaim, write: Write) -> (Write, bool) {
    let about = write.about.clone();
    match &write.next {
        Next::Completed { response, .. } if matches!(response.body, Kept::Bytes { .. }) => {
            let response = Arc::new(response.without_body(NotKept::Refused));
            (Write::settle(claim.token, response).with_about(about), false)
        }
        Next::Completed { .. } => (Write::mark_unknown(claim.token).with_about(about), true),
        _ => (write, false),
    }
}

fn body_bytes(write: &Write) -> usize {
    answer(write).map_or(0, |response| response.body_bytes())
}

/// The answers that the store has not taken yet. Past `bytes_max` the oldest one is given up.
#[derive(Debug, Default)]
pub(crate) struct UnsettledAnswers {
    bytes_max: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: usize,
    waiting: VecDeque<(Arc<Notify>, usize)>,
}

/// The place of one waiting answer in the queue; left when dropped.
#[derive(Debug)]
pub(crate) struct Unsettled {
    answers: Arc<UnsettledAnswers>,
    must_give_up: Arc<Notify>,
}

impl UnsettledAnswers {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, queue: Mutex::default() }
    }

    fn enter(self: &Arc<Self>, bytes: usize) -> Unsettled {
        let must_give_up = Arc::new(Notify::new());
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.bytes += bytes;
        queue.waiting.push_back((must_give_up.clone(), bytes));
        while queue.bytes > self.bytes_max {
            let Some((oldest, bytes)) = queue.waiting.pop_front() else {
                break;
            };
            queue.bytes -= bytes;
            oldest.notify_one();
        }
        Unsettled { answers: self.clone(), must_give_up }
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let mut queue = self.answers.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let place =
            queue.waiting.iter().position(|(entry, _)| Arc::ptr_eq(entry, &self.must_give_up));
        if let Some((_, bytes)) = place.and_then(|place| queue.waiting.remove(place)) {
            queue.bytes -= bytes;
        }
    }
}

/// The shortest and the longest pause between two copies of a write that the store did not take.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
