//! A store in Redis, for many nodes. It is best effort, and says so.
//!
//! 1. Each write is one script: guard, time and write are one step of the server, on its clock. A swap that is not the
//!    completion of an owner reads the record first, and writes over exactly what it read.
//! 2. A record is one value under `oo:<id>`. The sorted sets `oo:running` (by the end of the lease) and `oo:unknown`
//!    (by since when) list what the background work looks for. The script that writes the record writes these too.
//! 3. Completed and released records have a time to live of Redis's own, so that Redis deletes them by its own clock,
//!    and [`sweep`](Maintain::sweep) has nothing to do. Running and unknown records have none.
//! 4. An error that Redis answers is [`NotDone`](Fault::NotDone): scripts raise none after they have written the
//!    record. A call that was sent and not answered is [`Unsure`](Fault::Unsure). A value that cannot be read is an
//!    error, and never an absent record.
//! 5. Connections are made on a thread of the store's own. A connection that is silent for [`ANSWER_WAIT`] is given up,
//!    and the server closes it before another is used.
//!
//! [`promise`](RedisStore::promise) says in one line what a crash of this very Redis would forget. Even the best
//! configuration does not survive a failover to a replica, which may lack answered writes; `WAIT` narrows that and does
//! not close it, so that it is not used. `FLUSHALL` forgets everything. A Redis whose clock is set forward forgets keys
//! early: the trusted time of a node does not protect them here. Where that is not good enough, put Redis in front of a
//! database: [`layered`](super::layered).
//!
//! ```no_run
//! use onlyonce::store::redis::RedisStore;
//!
//! # async fn open() -> Result<(), Box<dyn std::error::Error>> {
//! let store = RedisStore::open("redis://127.0.0.1:6379").await?;
//! eprintln!("{}", store.promise());
//! # Ok(())
//! # }
//! ```

mod connection;
mod durability;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod keys;
mod link;
mod on_connect;
mod record_value;
mod reply;
mod scripts;
mod server;

use std::ops::ControlFlow::{Break, Continue};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::Client;
use futures_util::future::join_all;

pub use self::durability::Promise;
pub use self::error::RedisOpenError;
pub(super) use self::keys::Keys;
pub(super) use self::link::{Link, LinkOptions, OnConnect};
use self::reply::Reply;
pub(super) use self::reply::wait;
pub(super) use self::scripts::{Script, ScriptCall};
pub(super) use self::server::time;
pub use self::server::{RedisFacts, inspect};
use super::audit::Calling;
use super::wake::Wakers;
use super::{
    Beat, Census, Draft, Fault, Guard, Inspect, Lease, Maintain, Meter, Next, Page, Scan, Seen,
    Store, StoreError, StoreLimits, Swap, Swept, Watch, count_all,
};
use crate::clock::StoreTime;
use crate::record::{Record, StateKind, StateSet, Token};
use crate::scope::{IdPrefix, OperationId};
use crate::velocity::Allowance;

/// Records in a Redis. A clone is the same store; the last one that is dropped closes it.
#[derive(Clone, Debug)]
pub struct RedisStore {
    link: Arc<Link>,
    shared: Arc<Shared>,
}

/// What the store and the thread of its link share.
#[derive(Debug)]
struct Shared {
    keys: Keys,
    wakers: Wakers,
    promise: Mutex<Promise>,
}

/// How a store in Redis is opened.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    prefix: String,
}

impl RedisOptions {
    /// The prefix `oo`.
    pub fn new() -> Self {
        Self { prefix: "oo".to_owned() }
    }

    /// What every key in Redis begins with: 1 to 64 letters, digits and `_ - . :`. Stores with
    /// different prefixes do not see each other. Nodes of one deployment must have the same.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl RedisStore {
    /// Opens the store at `url`: `redis://[user:password@]host[:port][/database]`.
    ///
    /// # Errors
    /// When it cannot be reached; or is a replica, a cluster, too old, or written by an earlier build: see [`RedisOpenError`].
    pub async fn open(url: &str) -> Result<Self, RedisOpenError> {
        Self::open_with(url, RedisOptions::new()).await
    }

    /// Opens the store at `url` with `options`.
    ///
    /// # Errors
    /// As [`RedisStore::open`].
    pub async fn open_with(url: &str, options: RedisOptions) -> Result<Self, RedisOpenError> {
        let client = Client::open(url).map_err(RedisOpenError::Address)?;
        let keys = Keys::new(&options.prefix)?;
        let shared =
            Arc::new(Shared { keys, wakers: Wakers::default(), promise: Mutex::default() });
        let (link, open) = Link::start(client, LINK_OPTIONS, shared.clone())?;
        open.await.unwrap_or(Err(RedisOpenError::Silent(ANSWER_WAIT)))?;
        Ok(Self { link: Arc::new(link), shared })
    }

    /// What this Redis can promise, as it was configured when the store last connected to it.
    pub fn promise(&self) -> Promise {
        self.shared.promise.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finishes the calls under way, takes no more, and ends the connection. The other clones are closed too.
    pub async fn close(&self) {
        self.link.close().await;
    }

    async fn call(&self, script: ScriptCall) -> Result<Reply, Fault> {
        Reply::read(self.link.call(script).await?)
    }

    /// One script looks at a bounded number of keys, and may find nothing that is wanted among them.
    async fn scan_some(&self, scan: &Scan, prefix: Option<IdPrefix>) -> Result<Page, Fault> {
        reply::page(self.link.call(self.shared.keys.scan(scan, prefix)).await?)
    }
}

impl Store for RedisStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        let reply = self.call(self.shared.keys.claim(&draft)).await?;
        let seen = reply.seen(draft.id, Some(&draft))?;
        if seen.mine {
            self.shared.wakers.wake(draft.id);
        }
        Ok(seen)
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.call(self.shared.keys.load(id)).await?.seen(id, None)
    }

    /// An owner's completion is one script. Every other swap is a load, judged by [`cas`](super::cas), and a put over exactly
    /// the record that was read.
    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        to.demand_fit(BODY_BYTES_MAX)?;
        let keys = &self.shared.keys;
        let mut call = match (guard, &to) {
            (
                Guard::Owner { token, states },
                Next::Completed { settled_by, response, token: None },
            ) => keys.complete(id, (token, states), (*settled_by, response)),
            _ => keys.load(id),
        };
        for _ in 0..TRIES_MAX {
            let reply = self.call(call).await?;
            let (read, record) = match reply.swap(id, &guard, &to)? {
                Continue(put) => put,
                Break(swap) => {
                    if let Swap::Done(_) = swap {
                        self.shared.wakers.wake(id);
                    }
                    return Ok(swap);
                }
            };
            // A caller that stood still since it read the record judges it anew: the times in the new record are of that
            // moment, and what is kept would live too short.
            let not_after = to.not_after().min(reply.now.plus(PUT_WITHIN));
            call = keys.put(id, read, record.as_deref(), not_after);
        }
        Err(Fault::NotDone(StoreError::Busy))
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        let renew = async |(id, token): &(OperationId, Token)| {
            let answer = self.link.renew(self.shared.keys.renew(*id, *token, lease)).await;
            answer.and_then(Reply::read).map_or(Beat::Unsure, |reply| reply.beat(*id))
        };
        Ok(join_all(held.iter().map(renew)).await)
    }
}

impl Watch for RedisStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.shared.wakers.changed(id)
    }
}

impl Maintain for RedisStore {
    /// Running records, or unknown ones, are read from their sorted set: one that is renewed between two pages may be listed
    /// twice. A scan that asks for other states, or for several, goes through all keys of this Redis, with Redis's own
    /// `SCAN`; if keys are deleted meanwhile, a record may be left out or listed twice. Where few keys are wanted ones,
    /// pages may be empty and not the last.
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let query = Scan { limit: query.limit.clamp(1, PAGE_ROWS_MAX), ..query };
        let mut page = self.scan_some(&query, None).await?;
        for _ in 1..SCANS_MAX {
            if !page.records.is_empty() || page.next.is_none() {
                break;
            }
            page = self.scan_some(&Scan { after: page.next, ..query }, None).await?;
        }
        Ok(page)
    }

    /// Deletes nothing: Redis itself deletes what has expired.
    async fn sweep(&self, _: StoreTime, _: usize) -> Result<Swept, Fault> {
        Ok(Swept { deleted: 0, more: false })
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let script = self.shared.keys.check_value(name, from, to);
        reply::check_value(self.link.call(script).await?)
    }

    fn limits(&self) -> StoreLimits {
        StoreLimits { body_bytes_max: BODY_BYTES_MAX, embedded: false, expires_by_itself: true }
    }

    fn meter(&self) -> Option<&dyn Meter> {
        Some(self)
    }
}

impl Meter for RedisStore {
    fn admit<'a>(&'a self, allowances: &'a [Allowance]) -> Calling<'a, Option<Duration>> {
        let call = self.shared.keys.admit(None, allowances);
        Box::pin(async move { wait(self.link.call(call).await?) })
    }
}

impl Inspect for RedisStore {
    /// Redis compares every key of the database with the prefix.
    async fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> Result<Vec<(OperationId, Record)>, Fault> {
        let mut found = Vec::new();
        let states = StateSet::of(&StateKind::ALL);
        let mut scan = Scan { states, after: None, limit: PAGE_ROWS_MAX };
        loop {
            let page = self.scan_some(&scan, Some(prefix)).await?;
            found.extend(page.records);
            scan.after = page.next;
            if scan.after.is_none() || found.len() >= limit {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }

    /// All records are those keys of the database that may be ours: every one.
    async fn census(&self) -> Result<Census, Fault> {
        let mut census = Census::default();
        for state in [StateKind::Running, StateKind::Unknown] {
            count_all(self, &[state], &mut census).await?;
        }
        let records = reply::understood(self.link.call(self.shared.keys.size()).await?)?;
        Ok(Census { records, ..census })
    }
}

/// How long a call may be without an answer before its connection is given up.
pub const ANSWER_WAIT: Duration = Duration::from_secs(3);
const LINK_OPTIONS: LinkOptions = LinkOptions {
    calls_max: 8192,
    answer_within: ANSWER_WAIT,
    waits_for_connection: true,
    retry_pause: Duration::from_millis(200),
};
/// The largest body that is kept: it must pass over the network within [`ANSWER_WAIT`], and all other calls behind it.
const BODY_BYTES_MAX: usize = 16 << 20;
/// How old what was read may be when it is written over.
const PUT_WITHIN: Duration = Duration::from_secs(1);
/// How often others may be faster with a record before a swap of it is refused as busy.
const TRIES_MAX: usize = 16;
/// Scripts of one page: a caller has its cursor after so many, before it gives up waiting.
const SCANS_MAX: usize = 16;
/// Records in one page: Redis does nothing else while its script collects them.
const PAGE_ROWS_MAX: usize = 1000;
