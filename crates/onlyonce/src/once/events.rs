//! What happens to operations, told to whoever listens.
//!
//! Nobody waits for a listener: one that is too slow misses events, and is told how many. Without a listener an event
//! costs one read of a counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicUsize, Ordering};

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::{Ask, Inner, Once, Refusal};
use crate::clock::StoreTime;
use crate::engine::Write;
use crate::event::{By, EventKind};
use crate::record::{KeyText, Record, SettledBy};
use crate::scope::{OperationId, Principal};
use crate::store::{Guard, Next};

/// Something that happened to an operation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperationEvent {
    /// When, in trusted time.
    pub at: StoreTime,
    /// What.
    pub kind: EventKind,
    /// The operation.
    pub id: OperationId,
    /// Its key.
    pub key: KeyText,
    /// Its route.
    pub route: Arc<str>,
    /// Who sent it, as a digest.
    pub principal: Principal,
    /// Which attempt, where one is meant.
    pub attempt: Option<u32>,
    /// The status of the answer, where there is one.
    pub status: Option<u16>,
    /// Who changed the record and why, if it was a person.
    pub by: Option<By>,
}

/// A listener. Made by [`Once::events`] and [`Once::sampled_events`].
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<Arc<OperationEvent>>,
    channel: Arc<EventChannel>,
    hears: Hears,
}

/// What a listener wants to hear.
#[derive(Clone, Copy, Debug)]
enum Hears {
    All,
    /// Every change, and some of the replays and refusals where there are very many.
    Sample,
}

/// What a listener hears next.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// Something happened.
    Event(Arc<OperationEvent>),
    /// The listener was too slow, and so many events are gone.
    Missed(u64),
}

impl Events {
    /// The next event; `None` once the engine is gone.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.receiver.recv().await {
            Ok(event) => Some(Heard::Event(event)),
            Err(RecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(RecvError::Closed) => None,
        }
    }

    /// The next event, if it has happened already.
    pub fn try_next(&mut self) -> Option<Heard> {
        match self.receiver.try_recv() {
            Ok(event) => Some(Heard::Event(event)),
            Err(TryRecvError::Lagged(missed)) => Some(Heard::Missed(missed)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.channel.count(self.hears).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where events are told.
#[derive(Debug)]
pub(crate) struct EventChannel {
    hear_all: AtomicUsize,
    hear_a_sample: AtomicUsize,
    sampled: Sampled,
    sender: broadcast::Sender<Arc<OperationEvent>>,
}

impl Default for EventChannel {
    fn default() -> Self {
        Self {
            hear_all: AtomicUsize::new(0),
            hear_a_sample: AtomicUsize::new(0),
            sampled: Sampled::default(),
            sender: broadcast::Sender::new(EVENTS_MAX),
        }
    }
}

impl EventChannel {
    fn count(&self, hears: Hears) -> &AtomicUsize {
        match hears {
            Hears::All => &self.hear_all,
            Hears::Sample => &self.hear_a_sample,
        }
    }

    fn has(&self, hears: Hears) -> bool {
        self.count(hears).load(Ordering::Relaxed) > 0
    }

    /// Whether anybody wants to hear of this event.
    fn wants(&self, event: &OperationEvent) -> bool {
        self.has(Hears::All)
            || self.has(Hears::Sample) && (!event.kind.is_reading() || self.sampled.takes(event.at))
    }
}

/// Counts the replays and refusals of a second. Events of all of them would take a tenth of the throughput of replays.
#[derive(Debug, Default)]
struct Sampled {
    second: AtomicI64,
    count: AtomicU32,
}

impl Sampled {
    /// Whether there is room for one more in its second. One too many or too few is as good.
    fn takes(&self, at: StoreTime) -> bool {
        let second = at.as_ms().div_euclid(1_000);
        if self.second.load(Ordering::Relaxed) != second {
            self.second.store(second, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.load(Ordering::Relaxed) < SAMPLED_A_SECOND
            && self.count.fetch_add(1, Ordering::Relaxed) < SAMPLED_A_SECOND
    }
}

impl Once {
    /// Hears what happens to the operations of this process from now on. A listener that falls
    /// more than 4,096 events behind misses the oldest.
    pub fn events(&self) -> Events {
        self.listener(Hears::All)
    }

    /// The same for a listener that is always there, such as one that shows hot keys: it hears of every change, and of the
    /// first 1,000 replays and refusals of each second.
    pub fn sampled_events(&self) -> Events {
        self.listener(Hears::Sample)
    }

    fn listener(&self, hears: Hears) -> Events {
        let channel = self.inner.events.clone();
        channel.count(hears).fetch_add(1, Ordering::Relaxed);
        Events { receiver: channel.sender.subscribe(), channel, hears }
    }
}

impl Inner {
    /// Tells what happened to the operation that a request is about.
    pub(crate) fn tell_of(
        &self,
        ask: &Ask,
        kind: EventKind,
        attempt: Option<u32>,
        status: Option<u16>,
    ) {
        self.tell(|at| OperationEvent {
            at,
            kind,
            id: ask.id,
            key: ask.key.clone(),
            route: ask.policy.route().clone(),
            principal: ask.principal,
            attempt,
            status,
            by: None,
        });
    }

    /// Tells how a request ended that did not execute its operation.
    pub(crate) fn tell_refused(&self, ask: &Ask, refusal: &Refusal) {
        if let Some((kind, status)) = refusal.event() {
            self.tell_of(ask, kind, None, status);
        }
    }

    /// Tells what a write that the store has taken made of a record.
    pub(crate) fn tell_written(
        &self,
        id: OperationId,
        record: &Record,
        (kind, status): (EventKind, Option<u16>),
        by: Option<&By>,
    ) {
        self.tell(|at| OperationEvent {
            at,
            kind,
            id,
            key: record.key.clone(),
            route: record.route.clone(),
            principal: record.principal,
            attempt: Some(record.attempt),
            status,
            by: by.cloned(),
        });
    }

    pub(crate) fn tell(&self, event: impl FnOnce(StoreTime) -> OperationEvent) {
        let is_audited = self.store.trail().is_some();
        if !is_audited && !self.events.has(Hears::All) && !self.events.has(Hears::Sample) {
            return;
        }
        let event = event(self.trusted_now());
        if is_audited && event.kind.is_reading() {
            self.note_reading(&event);
        }
        if self.events.wants(&event) {
            // Without a receiver nobody misses it.
            let _ = self.events.sender.send(Arc::new(event));
        }
    }
}

impl Refusal {
    /// What a refusal tells of its operation: the kind of event, and the status of the answer.
    pub(crate) fn event(&self) -> Option<(EventKind, Option<u16>)> {
        match self {
            Self::Replay(response) => Some((EventKind::Replayed, Some(response.status.as_u16()))),
            Self::Reused | Self::Respelled => Some((EventKind::Mismatched, None)),
            Self::InProgress => Some((EventKind::RefusedInFlight, None)),
            Self::Unknown { .. }
            | Self::Unreadable
            | Self::StoreDown { .. }
            | Self::Overloaded
            | Self::DeadlineExceeded
            | Self::KeyExpired
            | Self::TokenExpired
            | Self::VelocityExceeded { .. }
            | Self::TooManyKeys { .. }
            | Self::Unauthorized(_)
            | Self::AuthorizationUnknown => None,
        }
    }
}

/// What a write makes happen: the kind of event, and the status of the answer that it stores.
pub(crate) fn event_of(write: &Write) -> (EventKind, Option<u16>) {
    match (&write.next, write.guard) {
        (Next::Completed { settled_by, response, .. }, _) => {
            let kind = match settled_by {
                SettledBy::Owner => EventKind::Executed,
                SettledBy::Policy | SettledBy::Operator => EventKind::Settled,
                SettledBy::Reconcile => EventKind::Reconciled,
            };
            (kind, Some(response.status.as_u16()))
        }
        (Next::Replaced(record), _) => {
            let status = record.response().map(|response| response.status.as_u16());
            (EventKind::Erased, status)
        }
        (Next::Absent, Guard::Unchanged(_)) => (EventKind::Forgotten, None),
        (Next::Absent, Guard::Owner { .. }) | (Next::Released { .. }, _) => {
            (EventKind::Released, None)
        }
        (Next::Running(_), _) => (EventKind::Claimed, None),
        (Next::Unknown { .. }, _) => (EventKind::Unknown, None),
    }
}

/// Replays and refusals that are told in a second while nobody hears all events.
const SAMPLED_A_SECOND: u32 = 1_000;
/// Events that a slow listener may be behind.
const EVENTS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_room_for_a_thousand_in_each_second() {
        let sampled = Sampled::default();
        let at = |ms| StoreTime::from_ms(ms);
        let taken = (0..3_000).filter(|n| sampled.takes(at(5_000 + n % 1_000))).count();
        assert_eq!(taken, 1_000);
        assert!(sampled.takes(at(6_000)));
    }

    #[test]
    fn a_sample_leaves_out_no_change() {
        let channel = EventChannel::default();
        channel.count(Hears::Sample).fetch_add(1, Ordering::Relaxed);
        let told = |kind| (0..2_000).filter(|_| channel.wants(&event(kind))).count();
        assert_eq!(told(EventKind::Replayed), 1_000);
        assert_eq!(told(EventKind::Executed), 2_000);
        channel.count(Hears::All).fetch_add(1, Ordering::Relaxed);
        assert_eq!(told(EventKind::Replayed), 2_000, "somebody hears all of them");
    }

    fn event(kind: EventKind) -> OperationEvent {
        OperationEvent {
            at: StoreTime::from_ms(7_000),
            kind,
            id: OperationId::from_bytes([1; 16]),
            key: KeyText::new("key"),
            route: "route".into(),
            principal: Principal::of("account", b"acct_1"),
            attempt: None,
            status: None,
            by: None,
        }
    }
}
