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
//! It keeps five connections, one each that writes, reads, renews leases, lists and sweeps, and listens. Its server must be Postgres 14 or later, with `fsync` on; a pooler between them must be in
//! session mode. A person reads the view `operation`. The schema's rule for versions is in the source of `schema.rs`:
//! a version adds, so that the one before works beside it.
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
mod answer;
mod batch;
mod call;
mod check_value;
mod columns;
mod connection;
mod error;
mod import;
mod maintenance;
mod notify;
mod queue;
mod reader;
mod renew;
mod schema;
mod sql_error;
mod statement;
mod tls;
mod value;
mod workers;
mod writer;

use std::sync::Arc;

use self::address::ServerAddress;
use self::call::{LoadCall, SwapCall, WriteCall, ask, demand_fit};
use self::check_value::CheckValue;
pub use self::error::PostgresOpenError;
pub use self::import::Import;
use self::workers::Workers;
use super::{
    Beat, Draft, Fault, Guard, Lease, Maintain, Next, Page, Scan, Seen, Store, StoreLimits, Swap,
    Swept, Watch,
};
use crate::clock::StoreTime;
use crate::record::Token;
use crate::scope::OperationId;

/// Records in one schema. A clone is the same store; the last one that is dropped closes it.
#[derive(Clone)]
pub struct PostgresStore {
    workers: Arc<Workers>,
    /// The schema's name, quoted.
    schema: String,
}

/// How a store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    schema: Option<String>,
    queue_max: usize,
    writers: usize,
}

impl PostgresOptions {
    /// The schema `onlyonce`, one writer, and a queue of 8,192.
    pub fn new() -> Self {
        Self { schema: None, queue_max: QUEUE_MAX, writers: WRITERS }
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
        let schema = address.schema.clone();
        let workers = Arc::new(Workers::start(address, options).await?);
        Ok(Self { workers, schema })
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
        let (maintenance, schema) = (self.workers.maintenance.clone(), self.schema.clone());
        let to = to.to_owned();
        let marking = async move {
            let mark = async |client: &_| maintenance::mark_moved(client, &schema, &to).await;
            maintenance.lock().await.transaction(mark).await.map_err(|error| error.fault())
        };
        self.workers.run(Fault::Unsure, marking).await
    }

    /// Finishes what was asked, takes nothing more, and closes the connections. The other clones are closed
    /// too.
    pub async fn close(&self) {
        self.workers.close().await;
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
        let writer = self.workers.writer(draft.id);
        ask(writer, Fault::Unsure, |reply| WriteCall::Claim(Box::new(draft), reply)).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        ask(&self.workers.loads, Fault::NotDone, |reply| LoadCall { id, reply }).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        demand_fit(&to)?;
        let swap = Box::new(SwapCall { id, guard, to });
        ask(self.workers.writer(id), Fault::Unsure, |reply| WriteCall::Swap(swap, reply)).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        let (renewer, held) = (self.workers.renewer.clone(), held.to_vec());
        let renewing =
            async move { Ok(renew::renew(&mut *renewer.lock().await, &held, lease).await) };
        self.workers.run(Fault::Unsure, renewing).await
    }
}

impl Watch for PostgresStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.workers.notifier.wakers.changed(id)
    }
}

impl Maintain for PostgresStore {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let maintenance = self.workers.maintenance.clone();
        let scanning = async move {
            let page = maintenance.lock().await.scan(query).await;
            page.map_err(|error| error.fault_of_read())
        };
        self.workers.run(Fault::NotDone, scanning).await
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let maintenance = self.workers.maintenance.clone();
        let sweeping = async move {
            let swept = maintenance::sweep(&maintenance, until, limit).await;
            swept.map_err(|error| error.fault())
        };
        self.workers.run(Fault::Unsure, sweeping).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let check_value = CheckValue::new(name, from, to);
        let (maintenance, schema) = (self.workers.maintenance.clone(), self.schema.clone());
        let checking = async move {
            let check = async |client: &_| check_value.run(client, &schema).await;
            maintenance.lock().await.transaction(check).await.map_err(|error| error.fault())
        };
        self.workers.run(Fault::Unsure, checking).await
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits {
            body_bytes_max: call::BODY_BYTES_MAX,
            embedded: false,
            expires_by_itself: false,
        }
    }
}

/// Calls that wait for a connection; more are refused.
const QUEUE_MAX: usize = 8192;
const WRITERS: usize = 1;
/// Each is a session of the server.
const WRITERS_MAX: usize = 16;
