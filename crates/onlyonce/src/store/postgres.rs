//! Records in a Postgres database, for many nodes.
//!
//! 1. Whatever calls have queued while the last commit was under way are the next commit, on one
//!    connection, or on two where many call; all that is under way for an id is on the same one. Loads are read
//!    together in the same way.
//! 2. Nobody is answered before the commit is on disk, and on the synchronous standbys if the server has
//!    any: `synchronous_commit` is `on` in our sessions, or `remote_apply` where that is the default.
//! 3. Reads and writes go to the primary only; every new connection asks. An address may list several hosts,
//!    with `target_session_attrs=read-write`.
//! 4. A connection that breaks while a statement may be under way makes its callers *unsure*, and is made
//!    anew. While the server is away, calls are answered at once: *not done*.
//! 5. Time is the server's. The highest time that was seen, and whether the clock is held after a jump, are
//!    in the database, so that every node obeys.
//! 6. A row that does not read is an error for its id: never absent.
//! 7. Waiters on other nodes are woken by one message per commit, best effort.
//!
//! It keeps six connections: two that write, and one each that reads, renews leases, lists and sweeps, and
//! listens. Its server must be Postgres 14 or later, with `fsync` on; a pooler between them must be in
//! session mode. The schema's rule for versions is in the source of `schema.rs`: a version adds, so that the
//! one before works beside it.
//!
//! What it cannot notice: an asynchronous standby that became the primary and lost what was answered, and a
//! database put back from an older backup. Both forget keys; of the first, [`PostgresStore::warnings`] warns.
//!
//! ```no_run
//! use onlyonce::store::postgres::PostgresStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::open("postgres://shop@db.internal/shop?sslmode=verify-full").await?;
//! store.close().await;
//! # Ok(())
//! # }
//! ```

mod check_value;
mod error;
mod filling;
mod house;
mod inbox;
mod job;
mod lanes;
mod link;
mod listing;
mod nap;
mod news;
mod params;
mod passes;
mod place;
mod reader;
mod renewer;
mod round;
mod row;
mod schema;
mod shared;
mod sql;
mod tls;
mod trouble;
mod value;
mod works;
mod writer;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use self::check_value::Checking;
pub use self::error::OpenError;
pub use self::filling::Filling;
use self::job::{Chore, Job, Load, Renewal, Reply, Swapping, Task, demand_fit};
use self::place::Place;
use self::works::Works;
use super::{
    Beat, Draft, Fault, Guard, Lease, Limits, Maintain, Next, Notes, Page, Scan, Seen, Store,
    StoreError, Swap, Swept, Watch,
};
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::record::Token;
use crate::scope::OperationId;

/// Records in one schema. A clone is the same store; the last one that is dropped closes it.
#[derive(Clone)]
pub struct PostgresStore {
    works: Arc<Works>,
}

/// How a store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    schema: Option<String>,
    clock: Arc<dyn Clock>,
    queue_max: usize,
    writers: usize,
}

impl PostgresOptions {
    /// The schema `onlyonce`, two writers, and a queue of 8,192 for each.
    pub fn new() -> Self {
        let clock = Arc::new(SystemClock);
        Self { schema: None, clock, queue_max: QUEUE_MAX, writers: WRITERS }
    }

    /// The schema that holds the records; it goes before one that the address names. Stores in different
    /// schemas of one database know nothing of each other.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The clock that tells how much time has passed on this node. Another than the system's is for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// How many calls may wait for each writer, and for the reader; more are refused as busy. A longer
    /// queue means longer waits, and more memory for the answers in it.
    #[must_use]
    pub fn with_queue_max(mut self, queue_max: usize) -> Self {
        self.queue_max = queue_max.max(1);
        self
    }

    /// How many connections may write. More than two mean smaller commits, and more of them.
    #[must_use]
    pub fn with_writers(mut self, writers: usize) -> Self {
        self.writers = writers.clamp(1, WRITERS_MAX);
        self
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("PostgresOptions");
        shown.field("schema", &self.schema).field("queue_max", &self.queue_max);
        shown.field("writers", &self.writers).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store at `url`, and makes its tables if they are not there.
    ///
    /// Besides what libpq knows, `url` may have the parameters `schema`, and `sslmode=verify-full` with
    /// `sslrootcert`.
    ///
    /// # Errors
    /// When the server cannot be reached, or is not one that keeps what it commits: see [`OpenError`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_with(url, PostgresOptions::new()).await
    }

    /// Opens the store at `url` with `options`.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub async fn open_with(url: &str, options: PostgresOptions) -> Result<Self, OpenError> {
        let place = Place::parse(url, options.schema.as_deref())?;
        let works = Works::start(place, options).await?;
        Ok(Self { works: Arc::new(works) })
    }

    /// What the server's owner should know: settings with which a failure may forget keys.
    pub fn warnings(&self) -> &[String] {
        &self.works.warnings
    }

    /// Marks the schema as moved to `to`, for good: it takes no write after this, and is not opened again.
    /// Its records must be there already.
    ///
    /// # Errors
    /// As every write of a store; repeat it after [`Fault::Unsure`].
    pub async fn mark_moved(&self, to: &str) -> Result<(), Fault> {
        ask(&self.works.chores, Fault::Unsure, |reply| Chore::MarkMoved(to.to_owned(), reply)).await
    }

    /// Finishes what was asked, takes nothing more, and closes the connections. The other clones are closed
    /// too.
    pub async fn close(&self) {
        self.works.close().await;
    }

    /// Asks the writer that has this id, or that has room.
    async fn write<T>(
        &self,
        id: OperationId,
        task: impl FnOnce(Reply<T>) -> Task,
    ) -> Result<T, Fault> {
        let pin = self.works.lanes.pin(id);
        let writer = &self.works.writers[pin.lane];
        ask(writer, Fault::Unsure, |reply| Job { task: task(reply), pin }).await
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("PostgresStore");
        shown.field("writers", &self.works.writers.len()).finish_non_exhaustive()
    }
}

/// Queues a call and waits for its answer. One whose worker died with it is as `lost` says.
async fn ask<Q, T>(
    queue: &mpsc::Sender<Q>,
    lost: fn(StoreError) -> Fault,
    call: impl FnOnce(Reply<T>) -> Q,
) -> Result<T, Fault> {
    let (reply, answer) = oneshot::channel();
    queue.try_send(call(reply)).map_err(|refused| match refused {
        mpsc::error::TrySendError::Full(_) => Fault::NotDone(StoreError::Busy),
        mpsc::error::TrySendError::Closed(_) => Fault::NotDone(StoreError::Closed),
    })?;
    answer.await.unwrap_or_else(|_| Err(lost(StoreError::Closed)))
}

impl Store for PostgresStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.write(draft.id, |reply| Task::Claim(Box::new(draft), reply)).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        ask(&self.works.loads, Fault::NotDone, |reply| Load { id, reply }).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next, _: Notes) -> Result<Swap, Fault> {
        demand_fit(&to)?;
        let swap = Box::new(Swapping { id, guard, to });
        self.write(id, |reply| Task::Swap(swap, reply)).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        let held = held.to_vec();
        ask(&self.works.renewals, Fault::Unsure, |reply| Renewal { held, lease, reply }).await
    }
}

impl Watch for PostgresStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.works.shared.wakers.changed(id)
    }
}

impl Maintain for PostgresStore {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        ask(&self.works.chores, Fault::NotDone, |reply| Chore::Scan(query, reply)).await
    }

    async fn sweep(&self, _: StoreTime, limit: usize) -> Result<Swept, Fault> {
        ask(&self.works.chores, Fault::Unsure, |reply| Chore::Sweep(limit, reply)).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let checking = Checking::new(name, from, to);
        ask(&self.works.chores, Fault::Unsure, |reply| Chore::CheckValue(checking, reply)).await
    }

    fn limits(&self) -> Limits {
        Limits { body_bytes_max: job::BODY_BYTES_MAX, embedded: false, expires_by_itself: false }
    }
}

/// Calls that wait for a connection; more are refused.
const QUEUE_MAX: usize = 8192;
const WRITERS: usize = 2;
/// Each is a session of the server.
const WRITERS_MAX: usize = 16;
