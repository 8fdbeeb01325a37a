//! Entries of Redis that this node must not use: their records were changed, and Redis has not confirmed that the
//! entry is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::StoreTime;
use crate::scope::OperationId;

#[derive(Debug, Default)]
pub(super) struct StaleEntries(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// How many changes of each record are not confirmed yet.
    ids: HashMap<OperationId, usize>,
    /// Entries that were completed until then are not used, whatever their id.
    until: Option<StoreTime>,
}

impl StaleEntries {
    /// No entry of `id` is used until the returned mark is cleared. When there are too many marks, all entries that
    /// are completed until `now` are given up instead; all there will ever be, if `now` is not known.
    pub(super) fn mark(self: &Arc<Self>, id: OperationId, now: Option<StoreTime>) -> StaleMark {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.ids.len() >= MARKS_MAX {
            inner.ids.clear();
            inner.until = inner.until.max(Some(now.unwrap_or(StoreTime::MAX)));
        }
        *inner.ids.entry(id).or_default() += 1;
        StaleMark { entries: self.clone(), id }
    }

    /// Whether a change of the record is not confirmed yet.
    pub(super) fn is_marked(&self, id: OperationId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ids.contains_key(&id)
    }

    pub(super) fn may_use(&self, id: OperationId, completed_at: StoreTime) -> bool {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !inner.ids.contains_key(&id) && inner.until.is_none_or(|until| completed_at > until)
    }
}

/// Dropped without [`clear`](Self::clear), the entry stays marked: nobody knows whether Redis still has it.
#[must_use]
pub(super) struct StaleMark {
    entries: Arc<StaleEntries>,
    id: OperationId,
}

impl StaleMark {
    /// Redis has confirmed that it has no entry of that record any more.
    pub(super) fn clear(self) {
        let mut inner = self.entries.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = inner.ids.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                inner.ids.remove(&self.id);
            }
        }
    }
}

const MARKS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_too_many_marks_all_older_entries_are_given_up() {
        let entries = Arc::new(StaleEntries::default());
        let id = |number: usize| OperationId::from_bytes((number as u128).to_be_bytes());
        let early = StoreTime::from_ms(10);
        entries.mark(id(0), None).clear();
        assert!(entries.may_use(id(0), early));
        for number in 0..=MARKS_MAX {
            drop(entries.mark(id(number), Some(StoreTime::from_ms(20))));
        }
        for number in 0..=MARKS_MAX {
            assert!(!entries.may_use(id(number), early));
        }
        assert!(entries.may_use(id(0), StoreTime::from_ms(21)));
        for number in 0..=MARKS_MAX {
            drop(entries.mark(id(number), Some(early)));
        }
        let between = StoreTime::from_ms(15);
        assert!(
            !entries.may_use(id(MARKS_MAX + 1), between),
            "a time that is told later is earlier"
        );
    }
}
