//! A store in DynamoDB, for many nodes without a database to run.
//!
//! 1. A record is one item. A claim is one `PutItem` on the condition that the item is absent, which returns the item that is
//!    there if it is not; every other write is one call on the condition of token, count and state.
//! 2. Every call is sent once: the SDK's own retries are off. An error that does not say "not done" is
//!    [`Unsure`](Fault::Unsure), and the engine repeats the identical call. Throttling is [`Busy`](StoreError::Busy).
//! 3. DynamoDB has no clock to ask. `now` is the `Date` of its answers, in whole seconds, carried on by this node's boot
//!    clock: never ahead of DynamoDB's clock, and behind it by at most a second and a round trip.
//! 4. Running and unknown records are listed by a sparse index in shards. It lags, so each is read consistently before it
//!    is listed.
//! 5. DynamoDB's own time to live only deletes what is over, within days: the engine judges expiry when it reads. Running
//!    and unknown records have none.
//! 6. An answer that does not fit into an item (400 KB) is kept in parts, which are written before the completion that
//!    names them.
//!
//! With an audit trail a change of a record, its entry and the head of a chain are one transaction.
//!
//! A claim that was sent before its `not_after` and that DynamoDB carries out later leaves a running record without an
//! owner. It is never executed: the reaper marks it unknown. A copy can be late by five minutes at most, because AWS
//! refuses older signatures.
//!
//! A table that is replicated between regions is refused: a condition holds in one region only.
//!
//! ```no_run
//! use onlyonce::store::dynamodb::DynamoStore;
//!
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! let store = DynamoStore::open("dynamodb:onlyonce?region=eu-central-1").await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod answers;
mod call;
mod check_value;
mod entry;
mod error;
mod expression;
mod import;
mod item;
mod names;
mod noted;
mod open;
mod pages;
mod parts;
mod schema;
mod server_time;
mod table;
mod trail;

use std::sync::Arc;
use std::time::Duration;

use aws_config::SdkConfig;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

pub use self::address::DynamoAddress;
pub use self::error::DynamoOpenError;
pub use self::import::Import;
pub use self::schema::{DynamoFacts, Missing, inspect, make_table};
use self::table::Table;
use super::audit::{Audit, AuditOptions, Note};
use super::wake::Wakers;
use super::{
    Beat, Census, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store,
    StoreError, StoreLimits, Swap, Swept, Watch, count_all,
};
use crate::clock::StoreTime;
use crate::record::{Record, StateKind, Token};
use crate::runtime_thread::RuntimeThread;
use crate::scope::{IdPrefix, OperationId};

/// Records in a table of DynamoDB. A clone is the same store; the last one that is dropped closes it.
#[derive(Clone, Debug)]
pub struct DynamoStore {
    thread: Arc<RuntimeThread>,
    /// One permit for each call that may be under way.
    room: Arc<Semaphore>,
    /// The same for renewals: a crowd of other calls cannot make leases lapse.
    renewals: Arc<Semaphore>,
    table: Arc<Table>,
    wakers: Wakers,
    audit: Option<AuditOptions>,
}

impl DynamoStore {
    /// Opens the store at `address`, such as `dynamodb:TABLE?region=…&endpoint=…&prefix=…`. Credentials, and a region that
    /// the address does not name, are found by the SDK's own chain: environment, profile, container, instance.
    ///
    /// # Errors
    /// When the table cannot be reached, is not there, or was made for something else: see [`DynamoOpenError`].
    pub async fn open(address: &str) -> Result<Self, DynamoOpenError> {
        Self::open_by(address.parse()?, None).await
    }

    /// Opens the store at `address` with a configuration of the SDK that the caller has made. Retries and timeouts in it
    /// are not used.
    ///
    /// # Errors
    /// As [`DynamoStore::open`].
    pub async fn open_with(address: &str, config: SdkConfig) -> Result<Self, DynamoOpenError> {
        Self::open_by(address.parse()?, Some(config)).await
    }

    async fn open_by(
        address: DynamoAddress,
        config: Option<SdkConfig>,
    ) -> Result<Self, DynamoOpenError> {
        Self::open_marked(address, config, None).await
    }

    /// The same, also if the table is being filled from the store `by`.
    async fn open_marked(
        address: DynamoAddress,
        config: Option<SdkConfig>,
        by: Option<&str>,
    ) -> Result<Self, DynamoOpenError> {
        let by = by.map(str::to_owned);
        let room = Arc::new(Semaphore::new(CALLS_MAX as usize));
        let renewals = Arc::new(Semaphore::new(RENEWALS_MAX));
        let (opened, open) = oneshot::channel();
        let calls = room.clone();
        let thread = RuntimeThread::start("onlyonce-dynamodb", move |mut stopped| async move {
            drop(opened.send(open::open(address, config, by.as_deref()).await));
            drop(stopped.wait_for(|stopped| *stopped).await);
            drop(timeout(ANSWER_WAIT, calls.acquire_many(CALLS_MAX)).await);
        });
        let thread = Arc::new(thread.map_err(DynamoOpenError::Thread)?);
        let table = open.await.unwrap_or(Err(DynamoOpenError::Ended))?;
        let (table, wakers) = (Arc::new(table), Wakers::default());
        Ok(Self { thread, room, renewals, table, wakers, audit: None })
    }

    /// Keeps an audit trail, in the transactions of what it tells. Default: none. A transaction costs about four times the
    /// write units of a record alone, and one that changes a record reads it first.
    ///
    /// # Errors
    /// [`WrongTable`](DynamoOpenError::WrongTable), if the table has not the indexes of a trail.
    pub fn with_audit(mut self, options: AuditOptions) -> Result<Self, DynamoOpenError> {
        let table = self.table.address.table.clone();
        match self.table.no_trail {
            Some(why) => Err(DynamoOpenError::WrongTable { table, why }),
            None => {
                self.audit = Some(options);
                Ok(self)
            }
        }
    }

    /// Finishes the calls under way, takes no more, and ends the connections. The other clones are closed too.
    pub async fn close(&self) {
        self.thread.stop().await;
    }

    /// What is worth a line in the log of every start.
    pub fn warnings(&self) -> &[String] {
        &self.table.warnings
    }

    /// Runs a call on the thread of the store, also if its caller leaves.
    async fn run<T: Send + 'static, F>(
        &self,
        call: impl FnOnce(Arc<Table>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        self.run_in(&self.room, call).await
    }

    async fn run_in<T: Send + 'static, F>(
        &self,
        room: &Arc<Semaphore>,
        call: impl FnOnce(Arc<Table>) -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let lost = |gone| Fault::Unsure(StoreError::Unavailable(Box::new(gone)));
        self.thread.run(room, lost, call(self.table.clone())).await
    }
}

/// Writes, with the note that tells of them where there is a trail.
impl DynamoStore {
    async fn claim_as(&self, draft: Draft, note: Option<Arc<Note>>) -> Result<Seen, Fault> {
        let wakers = self.wakers.clone();
        self.run(|table| async move {
            let seen = table.claim(&draft, note.as_deref()).await?;
            if seen.mine {
                wakers.wake(draft.id);
            }
            Ok(seen)
        })
        .await
    }

    async fn swap_as(
        &self,
        id: OperationId,
        guard: Guard,
        to: Next,
        note: Option<Arc<Note>>,
    ) -> Result<Swap, Fault> {
        to.demand_fit(self.limits().body_bytes_max)?;
        let wakers = self.wakers.clone();
        self.run(move |table| async move {
            let swap = match note {
                None => table.swap(id, guard, &to).await?,
                Some(note) => table.swap_noted(id, guard, &to, &note).await?,
            };
            if let Swap::Done(_) = swap {
                wakers.wake(id);
            }
            Ok(swap)
        })
        .await
    }
}

impl Store for DynamoStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.claim_as(draft, None).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.run(|table| async move { table.load(id).await }).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        self.swap_as(id, guard, to, None).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        let held = held.to_vec();
        let renew = |table: Arc<Table>| async move { Ok(table.renew(&held, lease).await) };
        self.run_in(&self.renewals, renew).await
    }
}

impl Watch for DynamoStore {
    /// Wakes after the writes of this node. Those of other nodes are found by the polls of the engine, which all waiters of
    /// a key share.
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.wakers.changed(id)
    }

    fn hears_other_nodes(&self) -> bool {
        false
    }
}

impl Maintain for DynamoStore {
    /// Running and unknown records are found by the index, which lags: one that was claimed a moment ago may be left out.
    /// A scan that asks for other states reads the whole table.
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        self.run(|table| async move { table.scan(&query).await }).await
    }

    /// Deletes nothing, unless the address says `sweep=scan`: then it reads the whole table.
    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let is_audited = self.audit.is_some();
        self.run(move |table| async move { table.sweep(until, limit, is_audited).await }).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let name = name.to_owned();
        let (from, to) = (from.map(str::to_owned), to.map(str::to_owned));
        self.run(|table| async move { table.check_value(&name, from, to).await }).await
    }

    fn limits(&self) -> StoreLimits {
        let body_bytes_max = match self.table.address.parts {
            true => parts::BODY_BYTES_MAX,
            false => parts::INLINE_BODY_BYTES_MAX,
        };
        let expires_by_itself = !self.table.address.sweeps;
        StoreLimits { body_bytes_max, embedded: false, expires_by_itself }
    }
}

impl Inspect for DynamoStore {
    fn audit(&self) -> Option<&dyn Audit> {
        self.audit.is_some().then_some(self as &dyn Audit)
    }

    /// The records of one key share a partition.
    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        self.run(move |table| async move { table.with_prefix(prefix, limit).await }).await
    }

    /// All records are DynamoDB's own count of the table's items, which is renewed every six hours. Parts of answers and entries of
    /// a trail are items too.
    async fn census(&self) -> Result<Census, Fault> {
        let mut census = Census::default();
        count_all(self, &[StateKind::Running, StateKind::Unknown], &mut census).await?;
        let items = self.run(|table| async move { table.items().await }).await?;
        Ok(Census { records: items.max(census.records), ..census })
    }
}

/// How long a call may be without an answer before it is given up.
pub const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Calls that may be under way; more are refused.
const CALLS_MAX: u32 = 8192;
/// Renewals that may be under way, besides: the engine makes one at a time.
const RENEWALS_MAX: usize = 64;
