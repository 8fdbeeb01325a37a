//! Records in a Postgres database, for many nodes.
//!
//! 1. The calls that queue during one commit are the next commit. Loads are read together in the same way. Where
//!    several connections write, all calls for an id go to the same one.
//! 2. Nobody is answered before the commit is on disk, and on the synchronous standbys if the server has
//!    any: `synchronous_commit` is `on` in our sessions, or `remote_apply` where that is the default.
//! 3. Reads and writes go to the primary only; every new connection asks. An address may list several hosts,
//!    with `target_session_attrs=read-write`.
//! 4. A connection that breaks while a statement may be under way makes its callers *unsure*, and is made
//!    anew. While the server is away, calls are answered at once: *not done*.
//! 5. Time is the server's, told with each answer.
//! 6. A row that does not read is an error for its id: never absent.
//! 7. Waiters on other nodes are woken by one message per commit, best effort.
//!
//! It keeps five connections: one each that writes, reads, renews leases, lists and sweeps, and listens. Its server must
//! be Postgres 14 or later, with `fsync` on; a pooler between them must be in session mode. A person reads the view
//! `operation`. The schema's rule for versions is in the source of `schema.rs`: a version adds, so that the one before
//! works beside it.
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

mod address;
mod audit_rows;
mod batch;
mod columns;
mod connection;
mod error;
mod identity;
mod import;
mod inspect;
mod maintenance;
mod member;
mod noted;
mod notify;
mod prepared;
mod renew;
mod schema;
mod server;
mod sql_error;
mod statement;
mod sweep;
mod tls;
mod trail;
mod value;
mod worker;
mod workers;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use self::address::ServerAddress;
pub use self::error::PostgresOpenError;
pub use self::import::Import;
pub use self::inspect::{PostgresFacts, SchemaFound, inspect};
use self::maintenance::Maintenance;
use self::member::{BODY_BYTES_MAX, Member, ask};
pub(crate) use self::prepared::PreparedConnection;
use self::sql_error::{SqlError, unclear};
use self::workers::Workers;
use super::audit::{Audit, AuditOptions, Note};
use super::{
    Beat, Census, Cursor, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen,
    Store, StoreIdentity, StoreLimits, Swap, Swept, Watch,
};
use crate::clock::StoreTime;
use crate::record::{Record, StateKind, StateSet, Token};
use crate::runtime_thread::RuntimeThread;
use crate::scope::{IdPrefix, OperationId};

/// Records in one schema. A clone is the same store; the last one that is dropped closes it.
#[derive(Clone)]
pub struct PostgresStore {
    thread: Arc<RuntimeThread>,
    workers: Arc<Workers>,
    audit: Option<AuditOptions>,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    schema: Option<String>,
    queue_max: usize,
    writers: usize,
    audit: Option<AuditOptions>,
}

impl PostgresOptions {
    /// The schema `onlyonce`, one writer, a queue of 8,192, and no audit trail.
    pub fn new() -> Self {
        Self { schema: None, queue_max: QUEUE_MAX, writers: WRITERS, audit: None }
    }

    /// The schema that holds the records; it goes before one that the address names. Stores in different
    /// schemas of one database know nothing of each other.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// How many calls may wait for each writer, and for the reader; more are refused as busy. A longer
    /// queue means longer waits, and more memory for the answers in it.
    #[must_use]
    pub fn with_queue_max(mut self, queue_max: usize) -> Self {
        self.queue_max = queue_max.max(1);
        self
    }

    /// How many connections write. More of them mean smaller commits, and more of them: measure before you change it.
    #[must_use]
    pub fn with_writers(mut self, writers: usize) -> Self {
        self.writers = writers.clamp(1, WRITERS_MAX);
        self
    }

    /// Keeps an audit trail, in the commits of what it tells. Each commit that changes a record takes a second round trip.
    /// All nodes of a deployment should keep one: what a node without it does is not told.
    #[must_use]
    pub fn with_audit(mut self, audit: AuditOptions) -> Self {
        self.audit = Some(audit);
        self
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl PostgresStore {
    /// Opens the store at `url`, and makes its tables if they are not there.
    ///
    /// Besides what libpq knows, `url` may have the parameters `schema`, and `sslmode=verify-full` with
    /// `sslrootcert`.
    ///
    /// # Errors
    /// When the server cannot be reached, or is not one that keeps what it commits: see [`PostgresOpenError`].
    pub async fn open(url: &str) -> Result<Self, PostgresOpenError> {
        Self::open_with(url, PostgresOptions::new()).await
    }

    /// Opens the store at `url` with `options`.
    ///
    /// # Errors
    /// As [`PostgresStore::open`].
    pub async fn open_with(url: &str, options: PostgresOptions) -> Result<Self, PostgresOpenError> {
        let address = ServerAddress::parse(url, options.schema.as_deref())?;
        let audit = options.audit;
        let (thread, workers) = Workers::start(address, options).await?;
        Ok(Self { thread: Arc::new(thread), workers: Arc::new(workers), audit })
    }

    /// What the server's owner should know: settings with which a failure may forget keys.
    pub fn warnings(&self) -> &[String] {
        &self.workers.warnings
    }

    /// Marks the schema as moved to `to`, for good: it takes no write after this, and is not opened again.
    /// Its records must be there already.
    ///
    /// # Errors
    /// As every write of a store; repeat it after [`Fault::Unsure`].
    pub async fn mark_moved(&self, to: &str) -> Result<(), Fault> {
        let to = to.to_owned();
        self.maintain(SqlError::fault, |maintenance| Box::pin(maintenance.mark_moved(to))).await
    }

    /// Makes the schema at `url` another store than the one that it was copied from. A copy of a whole disk is the only one that
    /// needs this: it has all that the server itself tells copies apart by, and behind one Redis filter the two would answer for each
    /// other. No store may be open there meanwhile.
    ///
    /// # Errors
    /// As [`PostgresStore::open`], and if sessions of a store are connected to the database.
    pub async fn new_identity(url: &str) -> Result<(), PostgresOpenError> {
        identity::renew(url).await
    }

    /// Finishes what was asked, takes nothing more, and closes the connections. The other clones are closed
    /// too.
    pub async fn close(&self) {
        self.thread.stop().await;
    }

    async fn claim_noted(&self, draft: Draft, note: Option<Arc<Note>>) -> Result<Seen, Fault> {
        let writer = self.workers.writer(draft.id);
        ask(writer, Fault::Unsure, |reply| Member::claim(draft, note, reply)).await
    }

    async fn swap_noted(
        &self,
        id: OperationId,
        guard: Guard,
        to: Next,
        note: Option<Arc<Note>>,
    ) -> Result<Swap, Fault> {
        to.demand_fit(BODY_BYTES_MAX)?;
        let writer = self.workers.writer(id);
        ask(writer, Fault::Unsure, |reply| Member::swap(id, guard, to, note, reply)).await
    }

    /// Runs a call of the maintenance connection. `fault` says what an error means for it.
    async fn maintain<T: Send + 'static>(
        &self,
        fault: fn(&SqlError) -> Fault,
        call: impl for<'a> FnOnce(&'a mut Maintenance) -> BoxFuture<'a, Result<T, SqlError>>
        + Send
        + 'static,
    ) -> Result<T, Fault> {
        let maintenance = self.workers.maintenance.clone();
        let call = async move { call(&mut *maintenance.lock().await).await };
        self.run(&self.workers.room, fault, call).await
    }

    /// Runs a call on the thread of the store, also if its caller leaves, if there is room for it.
    async fn run<T: Send + 'static>(
        &self,
        room: &Arc<Semaphore>,
        fault: fn(&SqlError) -> Fault,
        call: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, Fault> {
        // Boxed: a call that may have to reconnect is large.
        let call = Box::pin(async move { call.await.map_err(|error| fault(&error)) });
        self.thread.run(room, |ended| fault(&unclear(ended)), call).await
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("PostgresStore");
        shown.field("writers", &self.workers.writers.len()).finish_non_exhaustive()
    }
}

impl Store for PostgresStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.claim_noted(draft, None).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        ask(&self.workers.reader, Fault::NotDone, |reply| Member::load(id, reply)).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        self.swap_noted(id, guard, to, None).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        let (renewer, held) = (self.workers.renewer.clone(), held.to_vec());
        let renewing =
            async move { Ok(renew::renew(&mut *renewer.lock().await, &held, lease).await) };
        self.run(&self.workers.renewals, SqlError::fault, renewing).await
    }
}

impl Watch for PostgresStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.workers.notifier.wakers.changed(id)
    }
}

impl Maintain for PostgresStore {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        self.maintain(SqlError::fault_of_read, |maintenance| Box::pin(maintenance.scan(query)))
            .await
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let maintenance = self.workers.maintenance.clone();
        let sweeping = async move { sweep::sweep(&maintenance, until, limit).await };
        self.run(&self.workers.room, SqlError::fault, sweeping).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let texts = [Some(name), from, to].map(|text| text.map(str::to_owned));
        self.maintain(SqlError::fault, |maintenance| Box::pin(maintenance.check_value(texts))).await
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { body_bytes_max: BODY_BYTES_MAX, embedded: false, expires_by_itself: false }
    }

    fn identity(&self) -> Option<StoreIdentity> {
        self.workers.address.identity.get()
    }
}

impl Inspect for PostgresStore {
    /// A cursor is an id, so a scan can begin anywhere.
    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        let first = u128::from_be_bytes(*prefix.first_id().as_bytes());
        let (states, after) = (StateSet::of(&StateKind::ALL), first.checked_sub(1).map(Cursor));
        let page = self.scan(Scan { states, after, limit }).await?;
        let found = page.records.into_iter().filter(|(id, _)| id.prefix() == prefix);
        Ok(found.collect())
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.audit.is_some().then_some(self)
    }

    async fn census(&self) -> Result<Census, Fault> {
        self.maintain(SqlError::fault_of_read, |maintenance| Box::pin(maintenance.census())).await
    }
}

/// Calls that wait for a connection; more are refused.
const QUEUE_MAX: usize = 8192;
const WRITERS: usize = 1;
/// Each is a session of the server.
const WRITERS_MAX: usize = 16;
