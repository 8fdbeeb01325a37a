//! A store in Redis, for many nodes. It is best effort, and says so.
//!
//! 1. Each operation is one script: guard, time and write are one step of the server, on its clock.
//! 2. A record is one value. Its index (what runs, what is unknown, what has ended and when it expires)
//!    is written by the same script. All names of a record have the same hash tag.
//! 3. Nothing has a time to live of Redis's own: that would go by the server's clock, and a clock that
//!    jumped a day would delete a day of keys before anyone noticed. [`sweep`](Maintain::sweep) deletes
//!    what has expired, and nothing while the clock is held.
//! 4. Each of the 1024 slots has its own copy of the held clock, beside its records, and every script
//!    reads the copy of its slot. So every node obeys at once, one that starts later too. To hold or to
//!    trust the clock is to write all copies; it is answered when they are written. Each node watches the
//!    clock and says every few seconds that it trusts it, so that one that starts right after a jump does not.
//! 5. An error that Redis answers is [`NotDone`](Fault::NotDone): scripts write the record last. What was
//!    sent and not answered is [`Unsure`](Fault::Unsure). A value that does not read is an error.
//! 6. It talks on a thread of its own. A connection that fell silent is given up after
//!    [`ANSWER_WAIT`], and the server drops what it had not read of it before another is used.
//!
//! [`promise`](RedisStore::promise) says in one line what a crash of this very Redis would forget. Even the
//! best configuration does not survive a failover to a replica, which may lack what was answered; `WAIT`
//! narrows that and does not close it, so that it is not used. `FLUSHALL` forgets everything. Where that
//! is not good enough, put Redis in front of a database: [`layered`](super::layered).
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

mod ask;
mod epochs;
mod error;
mod greet;
mod keys;
mod line;
mod link;
mod listen;
mod promise;
mod pulse;
mod reply;
mod runner;
mod script;
mod value;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::Client;
use futures_util::future::join_all;

use self::epochs::Epochs;
pub use self::error::OpenError;
use self::greet::StoreGreeting;
pub(super) use self::keys::Names;
use self::keys::SLOTS;
pub(super) use self::link::{Greet, Link, Manners};
pub use self::promise::Promise;
use self::reply::Answer;
pub(super) use self::script::{Invocation, Script};
use super::wake::Wakers;
use super::{
    Beat, Cursor, Draft, Fault, Guard, Lease, Limits, Maintain, Next, Notes, Page, Scan, Seen,
    Store, StoreError, Swap, Swept, Watch,
};
use crate::clock::{Clock, StoreTime, SystemClock};
use crate::record::Token;
use crate::scope::OperationId;

/// Records in a Redis. A clone is the same store; the last one that is dropped closes it.
#[derive(Clone)]
pub struct RedisStore {
    link: Arc<Link>,
    shared: Arc<Shared>,
}

/// What the store and the thread of its link share.
struct Shared {
    names: Names,
    /// What the answers of the slots tell of the time, and what the beat tells.
    answers: Epochs,
    beats: Epochs,
    wakers: Wakers,
    clock: Option<Arc<dyn Clock>>,
    promise: Mutex<Promise>,
}

/// How a store in Redis is opened.
#[derive(Clone)]
pub struct RedisOptions {
    prefix: String,
    queue_max: usize,
    clock: Option<Arc<dyn Clock>>,
}

impl RedisOptions {
    /// The prefix `oo`, a queue of 8,192, and the server's clock.
    pub fn new() -> Self {
        Self { prefix: "oo".to_owned(), queue_max: QUEUE_MAX, clock: None }
    }

    /// What every name in Redis begins with: 1 to 64 letters, digits and `_ - . :`. Stores with
    /// different prefixes do not see each other. Nodes of one deployment must have the same.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How many calls may wait to be sent; more are refused as busy. A longer queue means longer waits,
    /// and more memory for the answers in it.
    #[must_use]
    pub fn with_queue_max(mut self, queue_max: usize) -> Self {
        self.queue_max = queue_max.max(1);
        self
    }

    /// Another clock than the server's, for tests: nodes with clocks of their own do not agree.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RedisOptions");
        shown.field("prefix", &self.prefix).field("queue_max", &self.queue_max);
        shown.finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Opens the store at `url`: `redis://[user:password@]host[:port][/database]`.
    ///
    /// # Errors
    /// When it cannot be reached, or is a replica, a cluster or too old: see [`OpenError`].
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_with(url, RedisOptions::new()).await
    }

    /// Opens the store at `url` with `options`.
    ///
    /// # Errors
    /// As [`RedisStore::open`].
    pub async fn open_with(url: &str, options: RedisOptions) -> Result<Self, OpenError> {
        let client = Client::open(url).map_err(OpenError::Address)?;
        let names = Names::new(&options.prefix)?;
        let boot = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock));
        let shared = Arc::new(Shared {
            names,
            answers: Epochs::new(boot.clone()),
            beats: Epochs::new(boot),
            wakers: Wakers::default(),
            clock: options.clock,
            promise: Mutex::new(Promise::unknown()),
        });
        let manners = Manners { queue_max: options.queue_max, ..MANNERS };
        let (link, open) = Link::start(client, manners, StoreGreeting(shared.clone()))?;
        open.await.unwrap_or(Err(OpenError::Silent { within: ANSWER_WAIT }))?;
        Ok(Self { link: Arc::new(link), shared })
    }

    /// What this Redis can promise, as it is configured now; read again every minute and with each new
    /// connection.
    pub fn promise(&self) -> Promise {
        self.shared.promise.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Finishes what was asked, takes nothing more, and ends the connection. The other clones are closed too.
    pub async fn close(&self) {
        self.link.close().await;
    }

    async fn ask(&self, ask: Invocation) -> Result<Answer, Fault> {
        let asked_at = self.shared.answers.time.boot();
        let value = self.link.call(ask).await?;
        self.shared.answer(value, asked_at)
    }

    async fn beat(&self, id: OperationId, token: Token, lease: Lease) -> Beat {
        let answer = self.ask(self.shared.renew(id, token, lease)).await;
        answer.map_or(Beat::Unsure, |answer| answer.beat())
    }
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RedisStore");
        shown.field("prefix", &self.shared.names.prefix());
        shown.field("is_up", &self.link.is_up()).finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        let answer = self.ask(self.shared.claim(&draft)).await?;
        let seen = answer.seen(draft.id, Some(&draft))?;
        if seen.mine {
            self.shared.wakers.wake(draft.id);
        }
        Ok(seen)
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.ask(self.shared.load(id)).await?.seen(id, None)
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next, _: Notes) -> Result<Swap, Fault> {
        if body_bytes(&to) > value::BODY_BYTES_MAX {
            return Err(Fault::NotDone(StoreError::Refused("its body is too large".into())));
        }
        let swap = self.ask(self.shared.swap(id, guard, &to)).await?.swap(id, guard)?;
        if let Swap::Done(_) = swap {
            self.shared.wakers.wake(id);
        }
        Ok(swap)
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        Ok(join_all(held.iter().map(|(id, token)| self.beat(*id, *token, lease))).await)
    }
}

impl Watch for RedisStore {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.shared.wakers.changed(id)
    }
}

impl Maintain for RedisStore {
    /// In the order of slots, and of ids within a slot. A page of what has ended reads all ids of a slot.
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        let limit = query.limit.clamp(1, PAGE_ROWS_MAX);
        let mut whole: Option<Page> = None;
        let mut first = query
            .after
            .map_or(0, |after| keys::slot(OperationId::from_bytes(after.0.to_be_bytes())));
        while first < SLOTS {
            let last = last_of(first);
            let room = limit - whole.as_ref().map_or(0, |page| page.records.len());
            let answer = self.ask(self.shared.scan(&query, first, last, room)).await?;
            let (page, stopped_at) = answer.page();
            let page = joined(whole.take(), page);
            if let Some(id) = stopped_at {
                let next = Some(Cursor(u128::from_be_bytes(*id.as_bytes())));
                return Ok(Page { next, ..page });
            }
            whole = Some(page);
            first = last + 1;
        }
        whole.ok_or_else(|| Fault::NotDone(StoreError::Refused("there is no such slot".into())))
    }

    async fn sweep(&self, _: StoreTime, limit: usize) -> Result<Swept, Fault> {
        let mut swept = Swept { deleted: 0, more: false };
        // By what was known before: a jump that is noticed meanwhile makes nothing plausible.
        let plausible = self.shared.beats.time.plausible();
        let mut first = 0;
        while first < SLOTS && !swept.more && !self.shared.is_doubtful() {
            let room = (limit - swept.deleted).min(SWEEP_ROWS_MAX);
            let ask = self.shared.sweep(first, room, plausible);
            let part = reply::swept(&self.link.call(ask).await?)?;
            swept.deleted += part.deleted;
            swept.more = part.more && swept.deleted >= limit;
            if !part.more {
                first = last_of(first) + 1;
            }
        }
        Ok(swept)
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        let ask = self.shared.check_value(name, from, to);
        reply::check_value(&self.link.call(ask).await?)
    }

    fn limits(&self) -> Limits {
        Limits { body_bytes_max: value::BODY_BYTES_MAX, embedded: false }
    }
}

fn body_bytes(to: &Next) -> usize {
    match to {
        Next::Completed { response, .. } => response.body_bytes(),
        _ => 0,
    }
}

fn last_of(first: u16) -> u16 {
    (first + SLOTS_PER_CALL).min(SLOTS) - 1
}

/// Two parts of a page; the time is the later one.
fn joined(before: Option<Page>, page: Page) -> Page {
    let Some(mut whole) = before else {
        return page;
    };
    whole.records.extend(page.records);
    let now = StoreTime::from_ms(whole.now.as_ms().max(page.now.as_ms()));
    Page { now, ..whole }
}

/// How long a call may be without an answer before its connection is given up.
pub const ANSWER_WAIT: Duration = Duration::from_secs(3);
const MANNERS: Manners = Manners {
    queue_max: QUEUE_MAX,
    answer_within: ANSWER_WAIT,
    is_patient: true,
    pause_min: Duration::from_millis(20),
    pause_max: Duration::from_secs(1),
};
/// Calls that wait to be sent; more are refused.
const QUEUE_MAX: usize = 8192;
/// So many slots are looked at by one script; a cluster would need one.
const SLOTS_PER_CALL: u16 = 64;
/// So many records are in a page, and deleted by one script: others wait for it.
const PAGE_ROWS_MAX: usize = 1000;
const SWEEP_ROWS_MAX: usize = 200;
