//! Claims that may reach the store after their caller has given up.
//!
//! A claim whose answer was lost may be in the store, or may still arrive there. Its operation is never executed, so
//! the claim is released again and again until the store has answered after the claim's `not_after`: from then on no
//! copy of the claim can insert a record.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::clock::StoreTime;
use crate::engine::Write;
use crate::scope::OperationId;

#[derive(Debug)]
pub(crate) struct Disowned {
    list: Mutex<VecDeque<Entry>>,
    places: Arc<Semaphore>,
    /// Notified when a claim is disowned.
    pub(crate) left: Notify,
}

/// One claim to be released, until no copy of it can arrive any more.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: OperationId,
    pub(crate) write: Write,
    pub(crate) not_after: StoreTime,
    _place: OwnedSemaphorePermit,
}

impl Disowned {
    pub(crate) fn new(places: usize) -> Self {
        let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { list: Mutex::default(), places, left: Notify::new() }
    }

    /// Reserves a place for a claim that is about to be sent; `None` if all places are taken.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        id: OperationId,
        write: Write,
        not_after: StoreTime,
    ) -> Option<Place> {
        let permit = self.places.clone().try_acquire_owned().ok()?;
        let entry = Entry { id, write, not_after, _place: permit };
        Some(Place { disowned: self.clone(), entry: Some(entry) })
    }

    pub(crate) fn push(&self, entry: Entry) {
        self.lock().push_back(entry);
    }

    pub(crate) fn pop(&self) -> Option<Entry> {
        self.lock().pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Entry>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reserved place. A place that is dropped before [`known`](Self::known) disowns its claim.
#[derive(Debug)]
pub(crate) struct Place {
    disowned: Arc<Disowned>,
    entry: Option<Entry>,
}

impl Place {
    /// The store has answered: the claim has its guard, or is not in the store and never will be.
    pub(crate) fn known(mut self) {
        self.entry = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.disowned.push(entry);
            // The place may be dropped by a dying task, so the background thread is told here.
            self.disowned.left.notify_one();
        }
    }
}
