//! Records that somebody asked for, and that should not be running any more.
//!
//! A reaper judges what a listing shows it ([`super::passes`]). One whose lease has been over for as long as it was, and
//! that is running all the same, may be where no listing looks: the housekeeper moves it to where one does.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::record::{Record, State};
use crate::scope::OperationId;
use crate::store::time::Told;

#[derive(Debug, Default)]
pub(super) struct Overdue(Mutex<BTreeSet<OperationId>>);

impl Overdue {
    /// Takes note of a record that was read. More than [`OVERDUE_MAX`] wait until they are asked for again.
    pub(super) fn see(&self, id: OperationId, record: &Record, told: Told) {
        if is_overdue(record, told) {
            let mut ids = self.lock();
            if ids.len() < OVERDUE_MAX {
                ids.insert(id);
            }
        }
    }

    /// All of them, in order. They are noted again when somebody asks again.
    pub(super) fn take(&self) -> BTreeSet<OperationId> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<OperationId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_overdue(record: &Record, told: Told) -> bool {
    match record.state {
        State::Running { lease_until } => {
            !told.clock_held && lease_until.plus_ms(record.lease_ms) < told.now
        }
        _ => false,
    }
}

const OVERDUE_MAX: usize = 1_000;
