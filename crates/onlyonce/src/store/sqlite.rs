//! The embedded store: one SQLite file, one process.
//!
//! 1. One process owns the file, by a lock on `<file>-lock`. A second open is refused, in the same
//!    process too; `sqlite3 -readonly` may read it meanwhile. One that may write may also write the
//!    log back and remove it, which after an error of the disk forgets keys.
//! 2. Whatever has queued is one transaction, without waiting for more. Nobody is answered, and
//!    memory shows nothing, before its commit is on disk.
//! 3. Every row carries a checksum. A record that does not read is an error for its key: never
//!    absent, never replayed. Rows are numbered without gaps, so that one that vanished is noticed.
//! 4. A file that is damaged, gone, empty or not ours is refused with a sentence. It is never
//!    replaced by an empty one: that would forget keys.
//! 5. After an error of the disk the file is opened again, and its log emptied, before anything is
//!    answered; an outside reader must leave it first. If it was deleted or replaced meanwhile, the
//!    store stays down.
//! 6. Leases are renewed in memory. At open, what a dead process left *running* is *unknown*.
//!
//! What it cannot notice: a log (`<file>-wal`) that was cut off or removed while the store was
//! closed, and a file put back from an older backup. Both forget keys.
//!
//! SQLite is compiled with this crate. By itself it calls `fsync`, which also writes the file's
//! times; build with `LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC=1` where `fdatasync` works, as on Linux,
//! and a commit is done in two thirds of the time. Our own binaries are built so.
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

mod batch;
mod boot;
mod changes;
mod check_value;
mod checkpoint;
mod columns;
mod connection;
mod error;
#[cfg(test)]
mod faults;
mod file;
mod hash;
mod index;
mod interned;
mod job;
mod log;
mod meta;
mod page;
mod queue;
mod reader;
mod recover;
mod rows;
mod schema;
mod shared;
mod slot;
mod sql;
mod sweep;
#[cfg(test)]
mod tests;
mod threads;
mod time;
mod transaction;
mod trouble;
mod view;
mod writer;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::oneshot;

pub use self::error::OpenError;
use self::job::{Checking, Job, Read, Reply, Swapping};
use self::shared::{Shared, Status};
use self::threads::Threads;
use super::{
    Beat, Draft, Fault, Guard, Lease, Limits, Maintain, Next, Notes, Page, Scan, Seen, Store,
    StoreError, Swap, Swept, Watch,
};
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::record::{Record, State, Token};
use crate::scope::OperationId;

/// Records in one file. A clone is the same store; the last one that is dropped closes it.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    /// Dropped last: joins the threads.
    threads: Arc<Threads>,
}

/// How a store is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    clock: Arc<dyn Clock>,
    queue_max: usize,
}

impl SqliteOptions {
    /// The system's clock, and a queue of 8,192.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), queue_max: QUEUE_MAX }
    }

    /// Where the store's time comes from. Another clock than the system's is for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How many calls may wait for the writer, and for the reader; more are refused as busy. A longer
    /// queue means longer waits, and more memory for the answers in it.
    #[must_use]
    pub fn with_queue_max(mut self, queue_max: usize) -> Self {
        self.queue_max = queue_max;
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
    /// Opens the store at `path`, and makes it if there never was one.
    ///
    /// # Errors
    /// When the file is in use, or is not a whole store of ours: see [`OpenError`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, SqliteOptions::new()).await
    }

    /// Opens the store at `path` with `options`.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub async fn open_with(
        path: impl AsRef<Path>,
        options: SqliteOptions,
    ) -> Result<Self, OpenError> {
        let (threads, shared) = Threads::start(path.as_ref(), options).await?;
        Ok(Self { shared, threads: Arc::new(threads) })
    }

    /// Finishes what was asked, takes nothing more, and lets go of the file. The other clones are closed too.
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

    /// Marks the file as moved to `to`, for good: it takes no write after this, and is not opened again. Its
    /// records must be there already.
    ///
    /// # Errors
    /// As every write of a store; repeat it after [`Fault::Unsure`].
    pub async fn mark_moved(&self, to: &str) -> Result<(), Fault> {
        self.submit(|reply| Job::MarkMoved(to.to_owned(), reply)).await
    }

    async fn submit<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, Fault> {
        self.shared.demand_up()?;
        let (reply, answer) = oneshot::channel();
        self.shared.jobs.push(job(reply))?;
        answer.await.unwrap_or(Err(Fault::Unsure(StoreError::Closed)))
    }

    async fn read<T>(&self, read: impl FnOnce(Reply<T>) -> Read) -> Result<T, Fault> {
        self.shared.demand_up()?;
        let (reply, answer) = oneshot::channel();
        self.shared.reads.push(read(reply))?;
        answer.await.unwrap_or(Err(Fault::NotDone(StoreError::Closed)))
    }

    /// What a claim finds without the writer: a completed record that outlives the draft.
    ///
    /// An earlier copy of the draft may wait for the writer. It cannot insert any more: the record is
    /// there until `not_after` has passed.
    async fn replayed(&self, draft: &Draft) -> Result<Option<Seen>, Fault> {
        if !self.shared.view().is_on_disk(&draft.id) {
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
        let view = self.shared.view();
        let mut shown = f.debug_struct("SqliteStore");
        shown.field("status", &self.shared.status());
        shown.field("records", &view.index.len());
        shown.field("index_bytes", &view.index.bytes()).finish_non_exhaustive()
    }
}

impl Store for SqliteStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.shared.demand_up()?;
        if let Some(seen) = self.replayed(&draft).await? {
            return Ok(seen);
        }
        self.submit(|reply| Job::Claim(Box::new(draft), reply)).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.shared.demand_up()?;
        let look = self.shared.view().look(&id);
        if look.place.is_some() && look.record.is_none() {
            return self.read(|reply| Read::One(id, reply)).await;
        }
        Ok(self.shared.seen(look.record, false))
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next, _: Notes) -> Result<Swap, Fault> {
        let swap = Box::new(Swapping { id, guard, to });
        self.submit(|reply| Job::Swap(swap, reply)).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        self.submit(|reply| Job::Renew(held.to_vec(), lease, reply)).await
    }
}

impl Watch for SqliteStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.shared.wakers.changed(id)
    }
}

impl Maintain for SqliteStore {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        self.shared.demand_up()?;
        let Some(mut page) = page::live_page(&self.shared, &query) else {
            return self.read(|reply| Read::Page(query, reply)).await;
        };
        if page.records.len() < query.limit && page.next.is_some() {
            let limit = query.limit - page.records.len();
            let rest = Scan { after: page.next, limit, ..query };
            let mut rest = self.read(|reply| Read::Page(rest, reply)).await?;
            page.records.append(&mut rest.records);
            page.next = rest.next;
        }
        Ok(page)
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        self.submit(|reply| Job::Sweep(limit, until, reply)).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let checking = Box::new(Checking::new(name, from, to));
        self.submit(|reply| Job::CheckValue(checking, reply)).await
    }

    fn limits(&self) -> Limits {
        Limits { body_bytes_max: trouble::BODY_BYTES_MAX, embedded: true, expires_by_itself: false }
    }
}

/// Calls that wait for a thread; more are refused.
const QUEUE_MAX: usize = 8192;
