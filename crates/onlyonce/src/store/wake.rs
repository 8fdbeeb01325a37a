//! Who waits for which record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use event_listener::{Event, EventListener};

use crate::scope::OperationId;

/// Wakes the waiters of a record after a write of it. An id that nobody waits for costs nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakers(Arc<Mutex<HashMap<OperationId, Waiting>>>);

#[derive(Debug, Default)]
struct Waiting {
    event: Event,
    count: usize,
}

impl Wakers {
    /// Subscribed when this returns.
    pub(crate) fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = waiting.entry(id).or_default();
        entry.count += 1;
        let wait = Wait { wakers: self.clone(), id };
        let listener = entry.event.listen();
        drop(waiting);
        wait.until(listener)
    }

    /// The record of `id` was written.
    pub(crate) fn wake(&self, id: OperationId) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = waiting.get(&id) {
            entry.event.notify(usize::MAX);
        }
    }

    /// Any record may have been written.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn wake_all(&self) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in waiting.values() {
            entry.event.notify(usize::MAX);
        }
    }
}

/// One waiter; gone when dropped.
#[derive(Debug)]
struct Wait {
    wakers: Wakers,
    id: OperationId,
}

impl Wait {
    async fn until(self, listener: EventListener) {
        listener.await;
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waiting = self.wakers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut entry) = waiting.entry(self.id) {
            entry.get_mut().count -= 1;
            if entry.get().count == 0 {
                entry.remove();
            }
        }
    }
}
