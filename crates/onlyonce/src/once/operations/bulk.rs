//! One change for many operations.

use std::collections::HashSet;

use futures_util::future::join_all;

use super::selection::SAMPLE_MAX;
use super::{Action, OperateError, Operations, RevisionDigest, Selection, StoredOperation, write};
use crate::event::By;
use crate::scope::OperationId;

/// What a change of many operations did, or would do.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Bulk {
    /// How many operations were chosen.
    pub matched: usize,
    /// How many of them were changed; in a dry run: would be.
    pub changed: usize,
    /// How many were not, because their state forbids it or they have changed since they were chosen.
    pub refused: usize,
    /// Some of those that were chosen, as they were before.
    pub sample: Vec<StoredOperation>,
    /// Some of those that were refused.
    pub refusals: Vec<BulkRefusal>,
    /// More operations match than one call changes: call again.
    pub has_more: bool,
}

/// An operation that was not changed with the others.
#[derive(Debug)]
#[non_exhaustive]
pub struct BulkRefusal {
    /// The operation.
    pub id: OperationId,
    /// Why.
    pub error: OperateError,
}

impl Operations {
    /// Makes one change to every operation of a [selection](Self::select) that is still as it was when it was chosen. In a
    /// dry run nothing is changed.
    ///
    /// # Errors
    /// If the store gives no answer. What was changed before stays changed; select again.
    pub async fn change_all(
        &self,
        selection: &Selection,
        action: &Action,
        by: &By,
        is_dry: bool,
    ) -> Result<Bulk, OperateError> {
        let (sample, has_more) = (selection.sample.clone(), selection.has_more);
        let mut bulk = Bulk { sample, has_more, ..Bulk::default() };
        for some in selection.chosen.chunks(CHANGES_AT_ONCE) {
            let steps =
                some.iter().map(|(id, seen)| self.step(*id, Some(*seen), action, by, is_dry));
            for ((id, _), changed) in some.iter().zip(join_all(steps).await) {
                bulk.count(*id, changed)?;
            }
        }
        Ok(bulk)
    }

    /// Makes a change of its own to each of these operations, if it is as it was seen where a revision says so. In a dry run
    /// nothing is changed. An operation that is not there is refused, and so is one that is named a second time.
    ///
    /// # Errors
    /// If the store gives no answer. What was changed before stays changed.
    pub async fn change_each(
        &self,
        changes: &[(OperationId, Option<RevisionDigest>, Action, By)],
        is_dry: bool,
    ) -> Result<Bulk, OperateError> {
        let (mut bulk, mut named) = (Bulk::default(), HashSet::new());
        for some in changes.chunks(CHANGES_AT_ONCE) {
            let (first, again): (Vec<_>, Vec<_>) =
                some.iter().partition(|(id, ..)| named.insert(*id));
            let steps = first
                .iter()
                .map(|(id, seen, action, by)| self.step(*id, *seen, action, by, is_dry));
            let changed = join_all(steps).await.into_iter().zip(&first);
            for (changed, (id, ..)) in changed {
                if let Ok(operation) = &changed
                    && bulk.sample.len() < SAMPLE_MAX
                {
                    bulk.sample.push(operation.clone());
                }
                bulk.count(*id, changed)?;
            }
            for (id, ..) in again {
                bulk.count(*id, Err(OperateError::Changed))?;
            }
        }
        Ok(bulk)
    }

    /// Changes one operation, if it is as it was `seen`. It is returned as it was before.
    pub(super) async fn step(
        &self,
        id: OperationId,
        seen: Option<RevisionDigest>,
        action: &Action,
        by: &By,
        is_dry: bool,
    ) -> Result<StoredOperation, OperateError> {
        let operation = self.find(id).await?.ok_or(OperateError::NotFound)?;
        if seen.is_some_and(|seen| seen != operation.revision()) {
            return Err(OperateError::Changed);
        }
        match is_dry {
            true => write(action, &operation).map(drop)?,
            false => self.change_seen(&operation, action, by).await?,
        }
        Ok(operation)
    }
}

impl Bulk {
    /// Counts one operation. A store without an answer ends the whole change.
    fn count(
        &mut self,
        id: OperationId,
        changed: Result<StoredOperation, OperateError>,
    ) -> Result<(), OperateError> {
        self.matched += 1;
        match changed {
            Ok(_) => self.changed += 1,
            Err(error @ OperateError::Store(_)) => return Err(error),
            Err(error) => {
                self.refused += 1;
                if self.refusals.len() < SAMPLE_MAX {
                    self.refusals.push(BulkRefusal { id, error });
                }
            }
        }
        Ok(())
    }
}

/// Changes that are under way at a time: a store commits them together.
const CHANGES_AT_ONCE: usize = 64;
