//! The audit trail of a batch: entries are numbered, hashed and inserted in the transaction of what they tell.

use crate::clock::StoreTime;
use crate::store::audit::{Appended, Note};
use crate::store::sqlite::layout::audit_rows;
use crate::store::sqlite::writer::batch::Batch;
use crate::store::sqlite::writer::job_error::{JobError, classify};

impl Batch<'_> {
    /// Adds an entry, if a trail is kept and there is something to tell. Before the change itself: the index is changed
    /// with the record, and is not taken back if a later statement fails.
    pub(crate) fn note(&mut self, at: StoreTime, note: Option<&Note>) -> Result<(), JobError> {
        let Some(note) = note.filter(|_| self.chain.is_some()) else { return Ok(()) };
        self.begin()?;
        let Some(chain) = &mut self.chain else { return Ok(()) };
        let entry = chain.add(at, note.clone());
        audit_rows::insert(self.db, &entry).map_err(classify)
    }

    /// Adds what changed no record, unless the batch was added before.
    pub(crate) fn append_notes(&mut self, appended: &Appended) -> Result<(), JobError> {
        match &mut self.chain {
            Some(chain) if chain.appended != appended.batch => chain.appended = appended.batch,
            _ => return Ok(()),
        }
        self.begin()?;
        appended.notes.iter().try_for_each(|(at, note)| self.note(*at, Some(note)))
    }

    pub(crate) fn prune(&mut self, until: StoreTime, limit: usize) -> Result<bool, JobError> {
        self.begin()?;
        let Some(chain) = &mut self.chain else { return Ok(false) };
        audit_rows::prune(self.db, chain, until, limit).map_err(classify)
    }
}
