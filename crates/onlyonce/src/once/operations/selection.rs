//! The operations that a filter chose, each as it was then.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::{OperateError, OperationFilter, Operations, StoredOperation};
use crate::hex;
use crate::record::Revision;
use crate::scope::OperationId;

/// The operations that a filter chose: which they are, and in which state of their records.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// In the order of their ids.
    pub(super) chosen: Vec<(OperationId, RevisionDigest)>,
    pub(super) sample: Vec<StoredOperation>,
    pub(super) has_more: bool,
}

impl Selection {
    /// How many operations were chosen.
    pub fn len(&self) -> usize {
        self.chosen.len()
    }

    /// Whether none was chosen.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// A text that is the same only if the same operations were chosen, and none of them has changed.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new_with_prefix(b"onlyonce selection 1\0");
        for (id, RevisionDigest(revision)) in &self.chosen {
            hash.update(id.as_bytes());
            hash.update(revision);
        }
        hex::encode(&hash.finalize()[..16])
    }
}

impl Operations {
    /// Chooses the operations that match `filter`, at most [`BULK_MAX`](Self::BULK_MAX).
    ///
    /// # Errors
    /// If the store gives no answer.
    pub async fn select(&self, filter: &OperationFilter) -> Result<Selection, OperateError> {
        let (mut selection, mut after) = (Selection::default(), None);
        loop {
            let page = self.list(filter, after, PAGE_ROWS).await?;
            selection.has_more |= page.is_cut;
            for operation in page.operations {
                selection.chosen.push((operation.id, operation.revision()));
                if selection.sample.len() < SAMPLE_MAX {
                    selection.sample.push(operation);
                }
            }
            after = page.next;
            selection.has_more |= selection.len() > Self::BULK_MAX;
            if after.is_none() || selection.len() > Self::BULK_MAX {
                break;
            }
        }
        selection.chosen.truncate(Self::BULK_MAX);
        // A record that was moved while the store was read may have been met twice.
        selection.chosen.sort_unstable();
        selection.chosen.dedup_by_key(|(id, _)| *id);
        Ok(selection)
    }

    /// The most operations that are changed with one call.
    pub const BULK_MAX: usize = 100_000;
}

/// Names one state of a record, as text. It says nothing about the token of the record's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RevisionDigest([u8; 8]);

impl RevisionDigest {
    pub(super) fn of(revision: Revision) -> Self {
        let hash = Sha256::new_with_prefix(b"onlyonce revision 1\0");
        let hash = hash.chain_update(revision.token.as_bytes());
        let hash = hash.chain_update(revision.count.to_be_bytes()).finalize();
        let mut digest = [0; 8];
        digest.copy_from_slice(&hash[..8]);
        Self(digest)
    }
}

impl fmt::Display for RevisionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl FromStr for RevisionDigest {
    type Err = RevisionDigestError;

    fn from_str(text: &str) -> Result<Self, RevisionDigestError> {
        hex::decode(text).map(Self).ok_or(RevisionDigestError)
    }
}

/// Give the `revision` of the operation, as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a revision is 16 hexadecimal digits")]
pub struct RevisionDigestError;

/// How many operations are shown.
pub(super) const SAMPLE_MAX: usize = 10;
/// Operations that are read at a time: their answers are in memory at once.
const PAGE_ROWS: usize = 64;
