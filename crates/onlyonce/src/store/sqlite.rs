//! The embedded store: one SQLite file, one process.
//!
//! 1. One process owns the file, by a lock on `<file>-lock`. A second open is refused, in the same process too.
//!    `sqlite3 -readonly` may read the file meanwhile. A program that may write can checkpoint and remove the write-ahead
//!    log (WAL, `<file>-wal`), which after an I/O error may be the only good copy of some records.
//! 2. All calls that have queued are one transaction; the writer does not wait for more. No call is answered, and the
//!    index in memory does not change, before the commit is on disk.
//! 3. Every row carries a checksum. A record that cannot be read is an error for its key: never absent, never replayed.
//!    Rows are numbered without gaps, so that a row that vanished is noticed.
//! 4. A file that is damaged, gone, empty or not a store is refused, and the error says what to do. The file is never
//!    replaced by an empty one: that would forget keys.
//! 5. After an I/O error the file is reopened and the WAL emptied before anything is answered. Another program that reads
//!    the file must end first. If the file was deleted or replaced meanwhile, the store stays down.
//! 6. Leases are renewed in memory. At open, every record that a dead process left *running* becomes *unknown*.
//!
//! 7. The lock file says whether the WAL has records that the file does not have. A WAL that is then gone or empty is refused
//!    ([`SqliteOpenError::LogLost`]), unless the loss is accepted.
//!
//! The store cannot notice a WAL that was cut off at the end of a commit while the store was closed, nor one that was replaced by
//! an older copy of itself, nor a file that was restored from an older backup after a clean stop. All of them forget keys.
//!
//! SQLite is compiled with this crate. By default it calls `fsync`, which also writes the times of the file. Build with
//! `LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC=1` where `fdatasync` works, as on Linux, and a commit takes two thirds of the time.
//! Our own binaries are built so.
//!
//! ```
//! use onlyonce::store::sqlite::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let store = SqliteStore::open(directory.path().join("onlyonce.db")).await?;
//! store.close().await;
//! # Ok(())
//! # }
//! ```

// These modules are private, so `pub(crate)` in the files below them reaches no further than this store.
mod audit;
mod error;
#[cfg(test)]
mod faults;
mod file;
mod index;
mod jobs;
mod layout;
mod queue;
mod reader;
mod shared;
#[cfg(test)]
mod tests;
mod threads;
mod time;
mod writer;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::oneshot;

pub use self::audit::SqliteTrail;
pub use self::error::SqliteOpenError;
pub use self::file::inspect::{PAGES_WAIT, PagesChecked, SqliteFacts, inspect};
use self::jobs::{CheckValueJob, ClaimJob, ReadJob, Reply, SwapJob, WriteJob};
use self::reader::listing;
use self::shared::{Shared, Status};
use self::threads::Threads;
use self::writer::job_error;
use super::audit::{Audit, AuditOptions, Note};
use super::{
    Beat, Census, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store,
    StoreError, StoreIdentity, StoreLimits, Swap, Swept, Watch,
};
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::record::{Record, State, Token};
use crate::scope::{IdPrefix, OperationId};

/// Records in one file. Clones share the store; dropping the last one closes it.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    /// Joins the threads when the last clone is dropped.
    threads: Arc<Threads>,
    /// New with each open: what another process did to the file in between is not known.
    identity: StoreIdentity,
}

/// How a store is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    clock: Arc<dyn Clock>,
    queue_max: usize,
    audit: Option<AuditOptions>,
    accepts_forgetting: bool,
}

impl SqliteOptions {
    /// The clock of the system, and queues of 8,192 calls.
    pub fn new() -> Self {
        let clock = Arc::new(SystemClock);
        Self { clock, queue_max: QUEUE_MAX, audit: None, accepts_forgetting: false }
    }

    /// Sets the clock of the store. The default is the clock of the system; another one is for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How many calls may wait for the writer, and how many for the reader; further ones are refused as busy. A longer
    /// queue means longer waits, and more memory for the responses in it.
    #[must_use]
    pub fn with_queue_max(mut self, queue_max: usize) -> Self {
        self.queue_max = queue_max;
        self
    }

    /// Keeps an audit trail in the file. Default: none. It costs a part of the throughput, and disk for as long as entries
    /// are kept. A trail that was kept before stays in the file, and can be read, without this.
    #[must_use]
    pub fn with_audit(mut self, options: AuditOptions) -> Self {
        self.audit = Some(options);
        self
    }

    /// Opens the file also if its log lost records: for a file that was restored from a backup. Default: such a file is refused.
    /// A retry of an operation whose record was lost is executed again, so leave this on for one start only.
    #[must_use]
    pub fn with_forgetting_accepted(mut self, accepted: bool) -> Self {
        self.accepts_forgetting = accepted;
        self
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("SqliteOptions");
        shown.field("queue_max", &self.queue_max).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store at `path`, and creates it if there never was one.
    ///
    /// # Errors
    /// When the file is in use, damaged, or not a store: see [`SqliteOpenError`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, SqliteOpenError> {
        Self::open_with(path, SqliteOptions::new()).await
    }

    /// Opens the store at `path` with `options`.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub async fn open_with(
        path: impl AsRef<Path>,
        options: SqliteOptions,
    ) -> Result<Self, SqliteOpenError> {
        let (threads, shared) = Threads::start(path.as_ref(), options).await?;
        Ok(Self { shared, threads: Arc::new(threads), identity: StoreIdentity::random() })
    }

    /// Refuses new calls, answers those that have queued, and closes the file. Every clone is closed.
    pub async fn close(&self) {
        self.shared.close();
        while self.shared.status() != Status::Closed {
            let closed = self.shared.closed.listen();
            if self.shared.status() != Status::Closed {
                closed.await;
            }
        }
        self.threads.join();
    }

    /// Marks the store as moved to `to`, for good: it refuses every further write and cannot be opened again. Copy its
    /// records to `to` first.
    ///
    /// # Errors
    /// As every write of a store; repeat it after [`Fault::Unsure`].
    pub async fn mark_moved(&self, to: &str) -> Result<(), Fault> {
        self.submit(|reply| WriteJob::MarkMoved(to.to_owned(), reply)).await
    }

    async fn submit<T>(&self, job: impl FnOnce(Reply<T>) -> WriteJob) -> Result<T, Fault> {
        self.shared.require_up()?;
        let (reply, answer) = oneshot::channel();
        self.shared.jobs.push(job(reply))?;
        answer.await.unwrap_or(Err(Fault::Unsure(StoreError::Closed)))
    }

    async fn read<T>(&self, read: impl FnOnce(Reply<T>) -> ReadJob) -> Result<T, Fault> {
        self.shared.require_up()?;
        let (reply, answer) = oneshot::channel();
        self.shared.reads.push(read(reply))?;
        answer.await.unwrap_or(Err(Fault::NotDone(StoreError::Closed)))
    }

    async fn claim_noted(&self, draft: Draft, note: Option<Arc<Note>>) -> Result<Seen, Fault> {
        self.shared.require_up()?;
        if let Some(seen) = self.completed_record(&draft).await? {
            return Ok(seen);
        }
        let claim = Box::new(ClaimJob { draft, note });
        self.submit(|reply| WriteJob::Claim(claim, reply)).await
    }

    /// The completed record that a claim meets, if it is still unexpired at `not_after` of the draft. Such a claim needs
    /// no writer.
    ///
    /// An earlier copy of the draft may still be queued. It cannot insert: the record is there until `not_after` has
    /// passed.
    async fn completed_record(&self, draft: &Draft) -> Result<Option<Seen>, Fault> {
        if !self.shared.index().must_be_read(&draft.id) {
            return Ok(None);
        }
        let seen = self.load(draft.id).await?;
        let outlives = |record: &Record| match record.state {
            State::Completed { expires_at, .. } => expires_at > draft.not_after,
            _ => false,
        };
        Ok(seen.record.as_ref().is_some_and(outlives).then_some(seen))
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let index = self.shared.index();
        let mut shown = f.debug_struct("SqliteStore");
        shown.field("status", &self.shared.status());
        shown.field("records", &index.ids.len());
        shown.field("index_bytes", &index.ids.bytes()).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.claim_noted(draft, None).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.shared.require_up()?;
        let lookup = self.shared.index().lookup(&id);
        if lookup.place.is_some() && lookup.record.is_none() {
            return self.read(|reply| ReadJob::One(id, reply)).await;
        }
        Ok(self.shared.seen(lookup.record, false))
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        let swap = Box::new(SwapJob { id, guard, to, note: None });
        self.submit(|reply| WriteJob::Swap(swap, reply)).await
    }

    async fn renew(
        &self,
        leases: &[(OperationId, Token)],
        lease: Lease,
    ) -> Result<Vec<Beat>, Fault> {
        self.submit(|reply| WriteJob::Renew(leases.to_vec(), lease, reply)).await
    }
}

impl Watch for SqliteStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.shared.wakers.changed(id)
    }
}

impl Maintain for SqliteStore {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        self.shared.require_up()?;
        let Some(mut page) = listing::live_page(&self.shared, &query) else {
            return self.read(|reply| ReadJob::Page(query, reply)).await;
        };
        if page.records.len() < query.limit && page.next.is_some() {
            let limit = query.limit - page.records.len();
            let rest = Scan { after: page.next, limit, ..query };
            let mut rest = self.read(|reply| ReadJob::Page(rest, reply)).await?;
            page.records.append(&mut rest.records);
            page.next = rest.next;
        }
        Ok(page)
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        self.submit(|reply| WriteJob::Sweep(limit, until, reply)).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let checking = Box::new(CheckValueJob::new(name, from, to));
        self.submit(|reply| WriteJob::CheckValue(checking, reply)).await
    }

    fn identity(&self) -> Option<StoreIdentity> {
        Some(self.identity)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            body_bytes_max: job_error::BODY_BYTES_MAX,
            embedded: true,
            expires_by_itself: false,
        }
    }
}

impl Inspect for SqliteStore {
    fn audit(&self) -> Option<&dyn Audit> {
        self.shared.audit.is_some().then_some(self as &dyn Audit)
    }

    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        self.shared.require_up()?;
        let ids: Vec<_> = self.shared.index().ids.with_prefix(prefix).take(limit).collect();
        let mut found = Vec::new();
        for id in ids {
            let record = self.load(id).await?.record;
            found.extend(record.map(|record| (id, record)));
        }
        Ok(found)
    }

    async fn census(&self) -> Result<Census, Fault> {
        self.shared.require_up()?;
        Ok(self.shared.index().census())
    }
}

/// The most calls that wait for a thread.
const QUEUE_MAX: usize = 8192;
