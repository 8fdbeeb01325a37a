//! What the audit trail is told: about whom a write is, and what was only read.
//!
//! A write carries its note to the store, which keeps it in the same commit. A reading is queued, and the background
//! thread appends the queue in batches. A queue that is full drops readings, and the trail is told how many.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::events::OperationEvent;
use super::{Ask, Inner};
use crate::body::json::{self, Found};
use crate::clock::StoreTime;
use crate::engine::Write;
use crate::event::By;
use crate::fingerprint::Pointer;
use crate::policy::Policy;
use crate::record::{Kept, KeyText, Record, Response};
use crate::scope::KeyDigest;
use crate::store::audit::{About, Appended, BusinessId, ID_BYTES_MAX, Note};
use crate::store::{Fault, Next};

impl Inner {
    /// What the trail is told of an attempt of a request; `None` where there is no trail.
    pub(crate) fn about_request(&self, ask: &Ask, attempt: u32) -> Option<Arc<About>> {
        self.store.trail()?;
        Some(Arc::new(About {
            key: self.key_digest(&ask.key),
            route: ask.policy.route().clone(),
            principal: Some(ask.principal),
            attempt: Some(attempt),
            by: None,
            ids: Vec::new(),
        }))
    }

    /// The write of an owner, with the business ids of the answer that it stores.
    pub(crate) fn with_answer(
        &self,
        write: Write,
        about: Option<Arc<About>>,
        policy: &Policy,
    ) -> Write {
        let ids = ids_of(&write, policy.audit_ids());
        let about = match about {
            Some(about) if !ids.is_empty() => Some(Arc::new(About { ids, ..About::clone(&about) })),
            about => about,
        };
        write.with_about(about)
    }

    /// A write to a record that is not this process's own, with what the trail is told of it.
    pub(crate) fn with_record(&self, write: Write, record: &Record, by: Option<&By>) -> Write {
        if self.store.trail().is_none() {
            return write;
        }
        let ids = ids_of(&write, &self.audit_ids(&record.route));
        write.with_about(Some(Arc::new(About {
            key: self.key_digest(&record.key),
            route: record.route.clone(),
            principal: Some(record.principal),
            attempt: Some(record.attempt),
            by: by.cloned(),
            ids,
        })))
    }

    /// What the trail has instead of a key; `None` of one that was erased or does not open.
    fn key_digest(&self, key: &KeyText) -> Option<KeyDigest> {
        key.as_sent().map(|key| KeyDigest::of_key(self.secret.as_ref(), key))
    }

    /// Queues what was only read.
    pub(crate) fn note_reading(&self, event: &OperationEvent) {
        let about = About {
            key: self.key_digest(&event.key),
            route: event.route.clone(),
            principal: Some(event.principal),
            attempt: event.attempt,
            by: None,
            ids: Vec::new(),
        };
        let OperationEvent { at, kind, id, status, .. } = *event;
        let note = Note { kind, id: Some(id), status, count: None, about: Arc::new(about) };
        if !self.readings.push(at, note) {
            self.counters.audit_dropped.one();
        }
    }

    /// Appends what has queued. What the store does not take stays queued.
    pub(crate) async fn append_readings(&self) {
        while let Some(batch) = self.readings.batch(self.trusted_now()) {
            match self.store.append(batch).await {
                Ok(()) => self.readings.done(),
                // The same batch is tried again: nobody knows whether the store has it.
                Err(Fault::NotDone(_) | Fault::Unsure(_)) => return,
            }
        }
    }
}

/// The readings that are not in the trail yet.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(StoreTime, Note)>,
    /// The batch that the store was given and has not confirmed.
    sent: Option<Arc<Appended>>,
    /// How many readings found the queue full, since the trail was last told.
    dropped: u64,
}

impl Readings {
    /// Queues one, or drops it. Whether it was queued.
    fn push(&self, at: StoreTime, note: Note) -> bool {
        let mut queue = self.lock();
        let has_room = queue.waiting.len() < READINGS_MAX;
        if has_room {
            queue.waiting.push_back((at, note));
        } else {
            queue.dropped += 1;
        }
        has_room
    }

    /// The batch to append next: the one that is not confirmed, else what has queued.
    fn batch(&self, now: StoreTime) -> Option<Arc<Appended>> {
        let mut queue = self.lock();
        if queue.sent.is_none() && !(queue.waiting.is_empty() && queue.dropped == 0) {
            let count = queue.waiting.len().min(BATCH_MAX);
            let mut notes: Vec<_> = queue.waiting.drain(..count).collect();
            let dropped = std::mem::take(&mut queue.dropped);
            if dropped > 0 {
                notes.push((now, Note::dropped(dropped)));
            }
            let batch = *crate::record::Token::random().as_bytes();
            queue.sent = Some(Arc::new(Appended { batch, notes }));
        }
        queue.sent.clone()
    }

    fn done(&self) {
        self.lock().sent = None;
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The business ids of the answer that a write stores.
fn ids_of(write: &Write, pointers: &[Pointer]) -> Vec<BusinessId> {
    let Next::Completed { response, .. } = &write.next else {
        return Vec::new();
    };
    let Response { body: Kept::Bytes { body, .. }, .. } = &**response else {
        return Vec::new();
    };
    let id = |pointer: &Pointer| match json::find(body, pointer) {
        Ok(Some(Found::Text(mut value))) => {
            value.truncate(value.floor_char_boundary(ID_BYTES_MAX));
            Some(BusinessId { pointer: pointer.to_string(), value })
        }
        _ => None,
    };
    pointers.iter().filter_map(id).collect()
}

/// Readings that wait for the trail: a few megabytes.
const READINGS_MAX: usize = 10_000;
/// Readings of one batch.
const BATCH_MAX: usize = 500;
