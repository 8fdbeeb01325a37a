//! Claims that may reach the store after nobody wants them any more.
//!
//! A claim whose answer was lost may be in the store, or may yet arrive there. Nobody executes it, so
//! it is released again and again until the store has answered definitely after the claim's
//! `not_after`: from then on no copy of it can insert anything.

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
    /// A claim was disowned.
    pub(crate) left: Notify,
}

/// One claim to be released until it cannot come back.
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

    /// A place for a claim that is about to be sent; `None` if there is none.
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

/// A reserved place. Dropped before the claim is [`known`](Self::known), it disowns the claim.
#[derive(Debug)]
pub(crate) struct Place {
    disowned: Arc<Disowned>,
    entry: Option<Entry>,
}

impl Place {
    /// The store answered: the claim is ours and held, or is not there and never will be.
    pub(crate) fn known(mut self) {
        self.entry = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.disowned.push(entry);
            // Whoever drops it may be a task that dies: nobody else would tell the background thread.
            self.disowned.left.notify_one();
        }
    }
}
