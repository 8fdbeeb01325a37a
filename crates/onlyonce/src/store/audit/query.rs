//! Which entries of a trail to read.

use std::fmt;
use std::str::FromStr;

use super::{Entry, HeadError, WriterId};
use crate::clock::StoreTime;
use crate::scope::{KeyDigest, OperationId};

/// Which entries to read, by time and oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryQuery {
    /// Of this operation.
    pub id: Option<OperationId>,
    /// Of the operations with this key.
    pub key: Option<KeyDigest>,
    /// Not earlier than this.
    pub since: Option<StoreTime>,
    /// Earlier than this.
    pub until: Option<StoreTime>,
    /// From where the last page ended.
    pub after: Option<EntryCursor>,
    /// At most so many; 0 is read as 1.
    pub limit: usize,
}

impl EntryQuery {
    /// All entries.
    pub const fn all(limit: usize) -> Self {
        Self { id: None, key: None, since: None, until: None, after: None, limit }
    }

    /// How many entries a page has at most.
    pub fn page(&self) -> usize {
        self.limit.clamp(1, PAGE_MAX)
    }
}

/// A page of entries.
#[derive(Clone, Debug, PartialEq)]
pub struct EntryPage {
    /// By time, oldest first.
    pub entries: Vec<Entry>,
    /// Where the next page starts; `None` after the last.
    pub next: Option<EntryCursor>,
}

impl EntryPage {
    /// A page of the rows that were found for `query`: the place of each, and its entry. One that does not read is left
    /// out, and those after it are not.
    pub fn of(rows: Vec<(EntryCursor, Option<Entry>)>, query: &EntryQuery) -> Self {
        let last = rows.last().filter(|_| rows.len() >= query.page());
        let next = last.map(|(place, _)| *place);
        Self { next, entries: rows.into_iter().filter_map(|(_, entry)| entry).collect() }
    }
}

/// Where a page ended: the time, the writer and the number of its last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryCursor {
    /// When it was.
    pub at: StoreTime,
    /// Whose entry it was.
    pub writer: WriterId,
    /// Its number.
    pub sequence: u64,
}

impl EntryCursor {
    /// The place of this entry.
    pub fn of(entry: &Entry) -> Self {
        Self { at: entry.at, writer: entry.writer, sequence: entry.sequence }
    }
}

impl fmt::Display for EntryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at.as_ms(), self.writer, self.sequence)
    }
}

impl FromStr for EntryCursor {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let parts: Vec<_> = text.split('.').collect();
        let [at, writer, sequence] = *parts else { return Err(HeadError) };
        let at = StoreTime::from_ms(at.parse().map_err(|_| HeadError)?);
        let sequence = sequence.parse().map_err(|_| HeadError)?;
        Ok(Self { at, writer: writer.parse()?, sequence })
    }
}

/// Entries of a page.
const PAGE_MAX: usize = 1_000;
