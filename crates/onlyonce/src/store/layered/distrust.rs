//! Entries that this node must not believe: their records were changed, and Redis has not confirmed it yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::StoreTime;
use crate::scope::OperationId;

#[derive(Debug, Default)]
pub(super) struct Distrust(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    ids: HashMap<OperationId, usize>,
    /// Entries that were completed until then are not believed, whatever their id.
    until: Option<StoreTime>,
}

impl Distrust {
    /// No entry of `id` is believed until the guard says that it is forgotten. `now`, if it is known, is
    /// when that list is too long, and all older entries are given up instead.
    pub(super) fn begin(self: &Arc<Self>, id: OperationId, now: Option<StoreTime>) -> Distrusted {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.ids.len() >= DISTRUSTED_MAX {
            inner.ids.clear();
            inner.until = Some(now.unwrap_or(StoreTime::MAX));
        }
        *inner.ids.entry(id).or_default() += 1;
        Distrusted { list: self.clone(), id }
    }

    pub(super) fn is_trusted(&self, id: OperationId, completed_at: StoreTime) -> bool {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !inner.ids.contains_key(&id) && inner.until.is_none_or(|until| completed_at > until)
    }
}

/// Dropped without a word, the id stays on the list.
#[must_use]
pub(super) struct Distrusted {
    list: Arc<Distrust>,
    id: OperationId,
}

impl Distrusted {
    /// There is no entry of that record in Redis any more.
    pub(super) fn end(self) {
        let mut inner = self.list.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = inner.ids.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                inner.ids.remove(&self.id);
            }
        }
    }
}

const DISTRUSTED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_on_the_list_is_distrusted_by_its_age() {
        let list = Arc::new(Distrust::default());
        let id = |number: usize| OperationId::from_bytes((number as u128).to_be_bytes());
        let early = StoreTime::from_ms(10);
        list.begin(id(0), None).end();
        assert!(list.is_trusted(id(0), early));
        for number in 0..=DISTRUSTED_MAX {
            drop(list.begin(id(number), Some(StoreTime::from_ms(20))));
        }
        for number in 0..=DISTRUSTED_MAX {
            assert!(!list.is_trusted(id(number), early));
        }
        assert!(list.is_trusted(id(0), StoreTime::from_ms(21)));
    }
}
