//! The audit trail: what happened to operations, chained so that a change of it shows.
//!
//! 1. A store that keeps a trail says so with [`Inspect::audit`](super::Inspect::audit). Then every change of a record is
//!    made through [`Audit`], with a [`Note`]; the store adds the note to its trail in the same commit, and only if the
//!    record changed. What only reads a record is [appended](Audit::append) later.
//! 2. The trail belongs to writers: whoever commits numbers its entries from 1 and [chains](Chain) them by their hashes,
//!    so that no writer waits for another, and an honest failure leaves no gap.
//! 3. A [`Head`] says where each chain begins and ends. It is written in the same commit as the entries. [`verify()`] reads
//!    everything and tells what does not fit.
//! 4. Entries go oldest first, whole chains never: after [`Audit::prune`] a chain begins at a checkpoint in its head.
//!
//! Whoever can rewrite both a chain and its head can cut off its end, or make all of it anew. Keep the heads of earlier days
//! elsewhere and compare ([`verify()`]) to notice that too.

mod chain;
mod query;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "dynamodb"))]
mod text;
mod verify;

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub use self::chain::Chain;
pub use self::query::{EntryCursor, EntryPage, EntryQuery};
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "dynamodb"))]
pub(crate) use self::text::{by_from_text, ids_from_text, ids_to_text};
pub use self::verify::{Broken, Verified, verify};

use super::{Draft, Fault, Guard, Next, Seen, Swap};
use crate::clock::StoreTime;
use crate::event::{By, EventKind};
use crate::hex;
use crate::record::Record;
use crate::scope::{KeyDigest, OperationId, Principal};

/// The future of a call.
pub type Calling<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Writes that keep a trail. Each has the promises of the method of [`Store`](super::Store) with its name.
pub trait Audit: Send + Sync {
    /// Claims, and notes it if the record was inserted.
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen>;

    /// Swaps, and notes it if the record was changed by this very call: a copy that finds its work done notes nothing.
    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap>;

    /// Adds what changed no record. A batch that was added before is not added again.
    fn append(&self, batch: Arc<Appended>) -> Calling<'_, ()>;

    /// Deletes entries before `until`, oldest first, and at most `limit` of each chain. Whether there may be more.
    fn prune(&self, until: StoreTime, limit: usize) -> Calling<'_, bool>;

    /// How long entries are kept.
    fn keep(&self) -> Duration;

    /// The trail that is written.
    fn trail(&self) -> &dyn Trail;
}

/// Reads a trail.
pub trait Trail: Send + Sync {
    /// The entries that match, by time, a page at a time.
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage>;

    /// How many entries of this kind an operation has.
    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64>;

    /// The heads of all chains.
    fn heads(&self) -> Calling<'_, Vec<Head>>;

    /// The head of one chain, if it is there.
    fn head(&self, writer: WriterId) -> Calling<'_, Option<Head>> {
        Box::pin(
            async move { Ok(self.heads().await?.into_iter().find(|head| head.writer == writer)) },
        )
    }

    /// The writers of all entries, also of those whose chain has no head any more. It may read everything.
    fn writers(&self) -> Calling<'_, Vec<WriterId>> {
        Box::pin(
            async move { Ok(self.heads().await?.into_iter().map(|head| head.writer).collect()) },
        )
    }

    /// The rows of a chain after a number, in their order: at most `limit`.
    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>>;

    /// Returns once everything shows that was committed before. [`verify()`] waits for it before it reads a chain again.
    fn catch_up(&self) -> Calling<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// How a store keeps its trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// How long entries are kept.
    pub keep: Duration,
}

impl AuditOptions {
    /// Entries are kept for so long.
    pub const fn new(keep: Duration) -> Self {
        Self { keep }
    }
}

impl Default for AuditOptions {
    /// 400 days.
    fn default() -> Self {
        Self::new(Duration::from_secs(400 * 24 * 60 * 60))
    }
}

/// What is to be noted.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// What happened.
    pub kind: EventKind,
    /// To which operation; `None` in a note of what was dropped.
    pub id: Option<OperationId>,
    /// The status of the answer, where there is one.
    pub status: Option<u16>,
    /// How many entries were dropped, in a note that says so.
    pub count: Option<u64>,
    /// The operation.
    pub about: Arc<About>,
}

impl Note {
    /// A note that so many others were dropped.
    pub fn dropped(count: u64) -> Self {
        let (kind, about) = (EventKind::Dropped, Arc::default());
        Self { kind, id: None, status: None, count: Some(count), about }
    }

    /// A note that a store deletes this record because its time to live is over.
    pub fn expired(id: OperationId, record: &Record) -> Self {
        Self::expired_by(id, About::of_record(record))
    }

    /// The same, for a store that knows the record by its columns.
    pub fn expired_by(id: OperationId, about: About) -> Self {
        Self::by_store(EventKind::Expired, id, about)
    }

    /// A note that a store marks this record unknown: it was running when the process that owned it died.
    pub fn left_unknown(id: OperationId, record: &Record) -> Self {
        Self::by_store(EventKind::Unknown, id, About::of_record(record))
    }

    fn by_store(kind: EventKind, id: OperationId, about: About) -> Self {
        Self { kind, id: Some(id), status: None, count: None, about: Arc::new(about) }
    }
}

/// The operation that a note is about, and who changed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    /// A digest of its key. What a store does by itself has none: it does not know the deployment's secret.
    pub key: Option<KeyDigest>,
    /// Its route.
    pub route: Arc<str>,
    /// Who sent it, as a digest.
    pub principal: Option<Principal>,
    /// Which attempt, where one is meant.
    pub attempt: Option<u32>,
    /// Who changed it and why, if it was a person.
    pub by: Option<By>,
    /// What the answer calls the thing that was made: at most [`IDS_MAX`].
    pub ids: Vec<BusinessId>,
}

impl About {
    /// What a record alone tells.
    fn of_record(record: &Record) -> Self {
        let (principal, attempt) = (Some(record.principal), Some(record.attempt));
        Self { route: record.route.clone(), principal, attempt, ..Self::default() }
    }
}

/// An id from the answer of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusinessId {
    /// The JSON pointer where it was found.
    pub pointer: String,
    /// At most [`ID_BYTES_MAX`] bytes.
    pub value: String,
}

/// The most business ids of an entry.
pub const IDS_MAX: usize = 8;
/// The longest business id. A longer one is cut.
pub const ID_BYTES_MAX: usize = 200;

/// Notes of what changed no record.
#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// Tells a repeated call from a new one.
    pub batch: [u8; 16],
    /// Each with when it happened.
    pub notes: Vec<(StoreTime, Note)>,
}

/// An entry of the trail.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Whose chain it is in.
    pub writer: WriterId,
    /// Its number in the chain, from 1.
    pub sequence: u64,
    /// The hash of the entry before it and of this one.
    pub hash: [u8; 32],
    /// When.
    pub at: StoreTime,
    /// What.
    pub note: Note,
}

/// A row of a chain, as it was found.
#[derive(Clone, Debug, PartialEq)]
pub enum ChainRow {
    /// It reads.
    Entry(Box<Entry>),
    /// It does not: no writer wrote it so.
    Unreadable {
        /// Its number.
        sequence: u64,
    },
}

impl ChainRow {
    /// Its number in the chain.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Entry(entry) => entry.sequence,
            Self::Unreadable { sequence } => *sequence,
        }
    }
}

/// A place in a chain: the number of an entry, and its hash. The place before the first entry is number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The number.
    pub sequence: u64,
    /// The hash.
    pub hash: [u8; 32],
}

/// Where a chain begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose chain it is.
    pub writer: WriterId,
    /// The checkpoint: the last entry that was deleted because of its age.
    pub from: Link,
    /// The last entry.
    pub last: Link,
}

impl Head {
    /// The head of a chain without entries.
    pub fn new(writer: WriterId) -> Self {
        Self { writer, from: Link::default(), last: Link::default() }
    }
}

/// A head as text, as it is kept elsewhere: writer, number and hash of the last entry.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Link { sequence, hash } = self.last;
        write!(f, "{} {sequence} {}", self.writer, hex::encode(&hash))
    }
}

/// Reads what [`Display`](fmt::Display) wrote; the checkpoint is not part of it.
impl FromStr for Head {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let parts: Vec<_> = text.split_ascii_whitespace().collect();
        let [writer, sequence, hash] = *parts else { return Err(HeadError) };
        let writer = writer.parse()?;
        let sequence = sequence.parse().map_err(|_| HeadError)?;
        let hash = hex::decode(hash).ok_or(HeadError)?;
        Ok(Self { last: Link { sequence, hash }, ..Self::new(writer) })
    }
}

/// Who writes a chain: the opened store, and which of its connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId {
    store: [u8; 16],
    number: u8,
}

impl WriterId {
    /// The writer with this number of an opened store.
    pub const fn new(store: [u8; 16], number: u8) -> Self {
        Self { store, number }
    }

    /// The bytes to store.
    pub fn to_bytes(self) -> [u8; 17] {
        let mut bytes = [self.number; 17];
        bytes[..16].copy_from_slice(&self.store);
        bytes
    }

    /// The writer with these bytes, as a store kept them.
    pub fn from_bytes(bytes: [u8; 17]) -> Self {
        let [store @ .., number] = bytes;
        Self { store, number }
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", hex::encode(&self.store), self.number)
    }
}

impl fmt::Debug for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriterId({self})")
    }
}

impl FromStr for WriterId {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let (store, number) = text.split_once('-').ok_or(HeadError)?;
        let store = hex::decode(store).ok_or(HeadError)?;
        Ok(Self { store, number: number.parse().map_err(|_| HeadError)? })
    }
}

/// The text is no head of a chain. Give the file that `onlyonce audit heads` wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a head is a writer, a number and 64 hexadecimal digits")]
pub struct HeadError;
