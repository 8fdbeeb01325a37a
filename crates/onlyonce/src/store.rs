//! The store contract: guarded compare-and-swap, and nothing else.
//!
//! A store is dumb. It holds a [`Record`] per [`OperationId`], writes one only if a [`Guard`] holds,
//! and tells its own time. It knows no policy: what may follow what is the engine's to say.
//!
//! 1. An answer is given only after the write it reports is as durable as the store promises.
//! 2. A guard that fails is an answer ([`Swap::Stale`]), not an error.
//! 3. [`Fault::NotDone`] means that the write has not happened and never will. Everything else that
//!    went wrong, a future that was dropped or timed out included, is [`Fault::Unsure`].
//! 4. *Unsure* is resolved by repeating the identical call. It must be harmless, and it must wait
//!    behind the one that may still be in flight.
//! 5. A record that cannot be read is an error for its id. It is never absent.
//!
//! [`cas`] says what each write makes of a record, for stores that hold records in memory.

pub mod audit;
pub mod cas;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(feature = "redis")]
pub mod layered;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "seal")]
pub mod sealed;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(
    feature = "dynamodb",
    feature = "memory",
    feature = "postgres",
    feature = "redis",
    feature = "sqlite"
))]
mod wake;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{StoreTime, as_ms};
use crate::fingerprint::Fingerprint;
use crate::record::{
    KeyText, Record, Response, Revision, SettledBy, State, StateKind, StateSet, TakenFrom, Token,
};
use crate::scope::{IdPrefix, OperationId, Principal};
use crate::store::audit::{Audit, Calling};
use crate::velocity::Allowance;

/// Holds the records. See the [module](self) for what every method promises.
pub trait Store: Send + Sync + 'static {
    /// Inserts the draft if its id is absent and `not_after` has not passed, else returns what is
    /// there: expired and released records are the engine's to judge, and are taken by `swap`.
    /// Repeat it, same draft, after `Unsure`.
    fn claim(&self, draft: Draft) -> impl Future<Output = Result<Seen, Fault>> + Send;

    /// What is there now. It must see every write that was answered before it was called.
    fn load(&self, id: OperationId) -> impl Future<Output = Result<Seen, Fault>> + Send;

    /// Makes the record what `to` says if `guard` still holds.
    fn swap(
        &self,
        id: OperationId,
        guard: Guard,
        to: Next,
    ) -> impl Future<Output = Result<Swap, Fault>> + Send;

    /// Extends the lease of each running record that still has its token, and changes its revision.
    /// One beat per entry, in their order.
    fn renew(
        &self,
        held: &[(OperationId, Token)],
        lease: Lease,
    ) -> impl Future<Output = Result<Vec<Beat>, Fault>> + Send;
}

/// Tells when a record may have changed.
pub trait Watch: Store {
    /// Subscribed from the moment of the call, not of the first poll: subscribe, then load. The
    /// future ends after the next write of the record, and may end for nothing.
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static;

    /// Whether writes of other nodes end [`changed`](Self::changed) too. Where they do not, a waiter finds them only by
    /// reading the record again; the waiters of a node then do so at the same moments, and share a read.
    fn hears_other_nodes(&self) -> bool {
        true
    }
}

/// What the background work needs.
pub trait Maintain: Store {
    /// The records in the given states, a page at a time.
    fn scan(&self, query: Scan) -> impl Future<Output = Result<Page, Fault>> + Send;

    /// Deletes at most `limit` records whose time to live is over at `until`, whatever the store's own clock
    /// says. Never a running or unknown one.
    fn sweep(
        &self,
        until: StoreTime,
        limit: usize,
    ) -> impl Future<Output = Result<Swept, Fault>> + Send;

    /// Keeps the text `to` under `name` if `from` is kept there (`None`: if nothing is), in one step and as
    /// durably as a record, and returns the text that is kept afterwards. Without `to` it only reads.
    ///
    /// These texts tell a node that its configuration would give every live key another id: see
    /// `OnceBuilder::id_changes`. A store that forgets them, or lets two nodes both
    /// believe that theirs is kept, lets such a node start, and retries run again.
    fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> impl Future<Output = Result<Option<String>, Fault>> + Send;

    /// What the store can take.
    fn limits(&self) -> StoreLimits;

    /// Which store this is; `None` if it does not say, or does not say yet. Two stores never have the same identity, not even
    /// when one was made as a copy of the other. It may change when the store reconnects, and finds another one at its address.
    ///
    /// A filter in front of the store ([`layered`]) answers only from what was written under this identity, and never for a
    /// store without one.
    fn identity(&self) -> Option<StoreIdentity> {
        None
    }

    /// The meter that all nodes of this store share; `None` if it has none, and each node counts by itself.
    fn meter(&self) -> Option<&dyn Meter> {
        None
    }
}

/// Tells one store from all others: see [`Maintain::identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreIdentity([u8; 16]);

impl StoreIdentity {
    /// The identity with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A new one, for a store that nobody else can reach.
    pub fn random() -> Self {
        Self(*Token::random().as_bytes())
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Counts for many nodes how often something is done.
pub trait Meter: Send + Sync {
    /// Counts one use of each allowance, on the meter's own clock; or of none, if one of them is used up: then how long to
    /// wait. The check and the count are one step, whoever else counts.
    fn admit<'a>(&'a self, allowances: &'a [Allowance]) -> Calling<'a, Option<Duration>>;
}

/// What operators ask of a store. The methods that are given here are right for every store, and read all of it: a store
/// that can do better should.
pub trait Inspect: Maintain {
    /// Up to `limit` records whose ids begin with `prefix`, in any order: the operations of one key, and perhaps a few of
    /// others.
    fn with_prefix(
        &self,
        prefix: IdPrefix,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(OperationId, Record)>, Fault>> + Send {
        async move {
            let mut found = Vec::new();
            let mut scan =
                Scan { states: StateSet::of(&StateKind::ALL), after: None, limit: INSPECTED_ROWS };
            loop {
                let page = self.scan(scan.clone()).await?;
                found.extend(page.records.into_iter().filter(|(id, _)| id.prefix() == prefix));
                scan.after = page.next;
                if scan.after.is_none() || found.len() >= limit {
                    found.truncate(limit);
                    return Ok(found);
                }
            }
        }
    }

    /// The audit trail that this store keeps; `None` if it keeps none.
    fn audit(&self) -> Option<&dyn Audit> {
        None
    }

    /// How many records there are, and since when the oldest of those that need attention wait.
    fn census(&self) -> impl Future<Output = Result<Census, Fault>> + Send {
        async move {
            let mut census = Census::default();
            count_all(self, &StateKind::ALL, &mut census).await?;
            Ok(census)
        }
    }
}

/// Counts the records in these states.
async fn count_all<S: Maintain + ?Sized>(
    store: &S,
    states: &[StateKind],
    census: &mut Census,
) -> Result<(), Fault> {
    let mut scan = Scan { states: StateSet::of(states), after: None, limit: INSPECTED_ROWS };
    loop {
        let page = store.scan(scan.clone()).await?;
        page.records.iter().for_each(|(_, record)| census.count(record));
        scan.after = page.next;
        if scan.after.is_none() {
            return Ok(());
        }
    }
}

/// Rows of one page while a whole store is read.
const INSPECTED_ROWS: usize = 500;

/// How many records a store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Running ones.
    pub running: u64,
    /// When the first of them was claimed.
    pub running_since: Option<StoreTime>,
    /// Unknown ones.
    pub unknown: u64,
    /// When the first of them became unknown.
    pub unknown_since: Option<StoreTime>,
    /// All records, expired ones that were not swept yet among them. A store may estimate this one.
    pub records: u64,
}

impl Census {
    /// Counts one record more.
    pub fn count(&mut self, record: &Record) {
        self.records += 1;
        match record.state {
            State::Running { .. } => {
                self.running += 1;
                earliest(&mut self.running_since, record.first_claimed_at);
            }
            State::Unknown { since } => {
                self.unknown += 1;
                earliest(&mut self.unknown_since, since);
            }
            State::Released { .. } | State::Completed { .. } => {}
        }
    }
}

fn earliest(first: &mut Option<StoreTime>, moment: StoreTime) {
    *first = Some(first.map_or(moment, |first| first.min(moment)));
}

/// A claim: the record to be, less what the store's clock decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// The operation.
    pub id: OperationId,
    /// The attempt.
    pub token: Token,
    /// The key as the client sent it.
    pub key: KeyText,
    /// What makes a request "the same".
    pub fingerprint: Fingerprint,
    /// Digest of who sent it.
    pub principal: Principal,
    /// The route that claims it.
    pub route: Arc<str>,
    /// How the request was sent, in a word without spaces; and, where the route may ask later what became of the
    /// operation, host and path, with spaces between. Empty where neither is needed.
    pub target: Arc<str>,
    /// How long the owner may be silent.
    pub lease: Lease,
    /// Lease and upstream timeout together.
    pub quiet_ms: i64,
    /// How long the record is kept once completed.
    pub ttl_ms: i64,
    /// A copy of this draft that reaches the store later than this inserts nothing.
    pub not_after: StoreTime,
}

/// How long an owner may be silent; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(i64);

impl Lease {
    /// A lease of `duration`, in whole milliseconds and at least one.
    pub fn new(duration: Duration) -> Self {
        Self(as_ms(duration).max(1))
    }

    /// Its length in milliseconds.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// Its length.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0.unsigned_abs())
    }
}

/// What must still be true of the record for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It has this token and one of these states: an owner's write.
    Owner {
        /// The owner's.
        token: Token,
        /// Where the write may start from.
        states: StateSet,
    },
    /// It is exactly as it was read: anyone else's write.
    Unchanged(Revision),
}

/// What a record is to become. Times are the store's, taken when it writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// No record.
    Absent,
    /// A new attempt.
    Running(Box<Takeover>),
    /// Outcome unknown, the owner's token kept; since now, or since an earlier moment that it returns to.
    Unknown {
        /// `None`: now.
        since: Option<StoreTime>,
    },
    /// Not executed, the owner's token kept; forgotten after its ttl, or at the moment that it returns to.
    Released {
        /// `None`: its ttl from now.
        expires_at: Option<StoreTime>,
    },
    /// Final; forgotten after its ttl.
    Completed {
        /// Who says so.
        settled_by: SettledBy,
        /// What a retry is answered with.
        response: Arc<Response>,
        /// A new token, for a write that is not the owner's.
        token: Option<Token>,
    },
    /// Exactly this record, times and all: what its writer has made of a completed record that it read, under a new token.
    Replaced(Box<Record>),
}

impl Next {
    /// No store makes this write after that moment.
    pub(crate) fn not_after(&self) -> StoreTime {
        match self {
            Self::Running(attempt) => attempt.draft.not_after,
            _ => StoreTime::MAX,
        }
    }

    /// The bytes of its body.
    #[cfg(any(feature = "dynamodb", feature = "postgres", feature = "redis"))]
    pub(crate) fn body_bytes(&self) -> usize {
        let response = match self {
            Self::Completed { response, .. } => Some(response),
            Self::Replaced(record) => record.response(),
            _ => None,
        };
        response.map_or(0, |response| response.body_bytes())
    }

    /// Refuses a body that is over the limit of a store.
    #[cfg(any(feature = "dynamodb", feature = "postgres", feature = "redis"))]
    pub(crate) fn demand_fit(&self, body_bytes_max: usize) -> Result<(), Fault> {
        let bytes = self.body_bytes();
        if bytes <= body_bytes_max {
            return Ok(());
        }
        let why = format!("a body of {bytes} bytes is over the limit of {body_bytes_max}");
        Err(Fault::NotDone(StoreError::Refused(why.into())))
    }
}

/// An attempt that takes over a record that someone else left.
#[derive(Clone, Debug, PartialEq)]
pub struct Takeover {
    /// The claim.
    pub draft: Draft,
    /// Its number.
    pub attempt: u32,
    /// Where it returns to if it is not executed.
    pub taken_from: Option<TakenFrom>,
    /// `None`: now.
    pub first_claimed_at: Option<StoreTime>,
}

/// What a store holds for an id, and its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The record; `None` if absent.
    pub record: Option<Record>,
    /// It is running with the token of the draft that was claimed.
    pub mine: bool,
    /// The store's time of this answer.
    pub now: StoreTime,
}

/// What became of a swap.
#[derive(Clone, Debug, PartialEq)]
pub enum Swap {
    /// Written; or the record already was what this write makes it.
    Done(Revision),
    /// The guard does not hold. Nothing was written.
    Stale(Box<Seen>),
}

/// What became of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The lease runs anew.
    Kept,
    /// The record is no longer this owner's, or no longer running.
    Lost,
    /// Nobody knows.
    Unsure,
}

/// Which records to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// In these states.
    pub states: StateSet,
    /// From where the last page ended.
    pub after: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
}

/// Where a page ended; its meaning is the store's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(pub u128);

/// A page of records.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The records, each once.
    pub records: Vec<(OperationId, Record)>,
    /// Where the next page starts; `None` after the last.
    pub next: Option<Cursor>,
    /// The store's time.
    pub now: StoreTime,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Records deleted.
    pub deleted: usize,
    /// Whether more were expired than the limit let it delete.
    pub more: bool,
}

/// What a store can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// The largest body that it keeps.
    pub body_bytes_max: usize,
    /// Whether it lives in this process alone.
    pub embedded: bool,
    /// Whether the store deletes what has expired by itself, by its own clock; then `sweep` deletes nothing. A
    /// running or unknown record is never deleted so.
    pub expires_by_itself: bool,
}

/// A call that gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It has not happened and never will.
    #[error("not done")]
    NotDone(#[source] StoreError),
    /// It may have happened, or may yet. Repeat the identical call.
    #[error("unsure whether it was done")]
    Unsure(#[source] StoreError),
}

impl Fault {
    /// What went wrong.
    pub fn error(&self) -> &StoreError {
        match self {
            Self::NotDone(error) | Self::Unsure(error) => error,
        }
    }
}

/// What went wrong in a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No answer, or an error of the machine below. Repeating with the same key is safe.
    #[error("store is unavailable")]
    Unavailable(#[source] BoxError),
    /// It is there, and takes nothing right now: its queue is full, or another program has locked it. Try again
    /// later.
    #[error("store is busy")]
    Busy,
    /// It will never take this content. Write less of it.
    #[error("store refuses this content")]
    Refused(#[source] BoxError),
    /// This record cannot be read. It is not absent: settle it by hand, or restore the store.
    #[error("record is unreadable")]
    Unreadable(#[source] BoxError),
    /// It was closed. Open it again.
    #[error("store is closed")]
    Closed,
}

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
