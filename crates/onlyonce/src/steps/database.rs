//! What the steps need of a database: compare and swap, and a transaction of the caller's.

use super::error::StepsError;
use super::held::{Draft, Guard, Held, Next};
use super::stopped::Reason;
use crate::record::Token;
use crate::store::BoxError;
use crate::transaction::Reply;

/// A database that keeps operations of several steps, and in which the steps work: `PgDatabase` or `SqliteDatabase`.
#[expect(private_bounds, reason = "nobody else implements it")]
pub trait Database: Journal {
    /// A transaction of this database, in which a step works. It is committed with the step's point when the work has
    /// ended well, and rolled back when it has not.
    type Tx: From<(String, Lent<Self::Work>)> + Send;
}

pub(super) trait Journal: Clone + Send + Sync + 'static {
    /// A transaction that is open.
    type Work: Send + 'static;

    /// What is stored for an operation.
    fn load(&self, id: &str) -> impl Future<Output = Result<Option<Held>, StepsError>> + Send;

    /// Inserts an operation, in place of the expired one with this revision. False if there is one.
    fn insert(
        &self,
        draft: &Draft,
        token: Token,
        lease_ms: i64,
        expired: Option<i64>,
    ) -> impl Future<Output = Result<bool, InsertError>> + Send;

    /// Writes `next` if the guard still holds and, without an owner, the operation is due. The revision grows by one.
    fn swap(
        &self,
        id: &str,
        guard: Guard,
        next: &Next,
    ) -> impl Future<Output = Result<bool, StepsError>> + Send;

    /// Renews the lease of an owner. False if it is the owner no more.
    fn renew(
        &self,
        id: &str,
        owner: Token,
        lease_ms: i64,
    ) -> impl Future<Output = Result<bool, StepsError>> + Send;

    /// Locks up to `rows_max` operations that are due, that nobody else has locked and that are not among `passed_over`, and
    /// writes what `choose` says, in one transaction. One that cannot be read keeps no others waiting.
    fn take_due(
        &self,
        names: &[String],
        passed_over: Vec<String>,
        rows_max: usize,
        choose: impl Fn(&Held) -> Option<Chosen> + Send,
    ) -> impl Future<Output = Result<Due, StepsError>> + Send;

    /// Whether the transaction of a step works on a snapshot, so that it cannot commit after a renewal of its lease.
    fn works_on_snapshots(&self) -> impl Future<Output = Result<bool, StepsError>> + Send;

    /// Begins a transaction in which the step with this number works.
    fn begin(
        &self,
        id: &str,
        number: usize,
    ) -> impl Future<Output = Result<Self::Work, Reason>> + Send;

    /// Writes in the transaction if the guard still holds, and commits it; without a transaction, in one of its own.
    fn commit(
        &self,
        id: &str,
        guard: Guard,
        change: &Change,
        work: Option<Self::Work>,
    ) -> impl Future<Output = Result<(), CommitError>> + Send;

    /// Whether the work of a step, which failed, has ended its transaction by itself: what it did may be committed.
    fn has_ended(&self, work: Self::Work) -> impl Future<Output = bool> + Send;

    /// Whether the error of a step's work means that its transaction met another one.
    fn is_conflict(error: &BoxError) -> bool;
}

/// Why it is not known that an operation was inserted.
#[derive(Debug)]
pub(super) enum InsertError {
    /// It was not.
    NotMade(StepsError),
    /// It may have been: then its lease will be over, and somebody goes on with it.
    Unsure(BoxError),
}

/// What was found among the due operations.
#[derive(Default)]
pub(super) struct Due {
    /// Those that `choose` has marked as taken, as they were read.
    pub(super) taken: Vec<(Held, Token)>,
    /// Why others cannot be read: [`StepsError::Unreadable`].
    pub(super) unreadable: Vec<StepsError>,
}

/// What is written about a due operation.
pub(super) struct Chosen {
    pub(super) next: Next,
    /// Whose it is now; `None` if it is nobody's.
    pub(super) taken: Option<Token>,
}

/// What a transaction adds to the operation.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Point { number: usize, name: String, value: String, lease_ms: i64 },
    Finish(Reply),
}

#[derive(Debug)]
pub(super) enum CommitError {
    /// The guard does not hold: nothing was committed.
    Stale,
    /// The transaction met another one: nothing was committed.
    Conflict(BoxError),
    /// The work has ended its transaction by itself: what it did may be committed without its point.
    EndedByWork(BoxError),
    /// Committed or not: only the row tells.
    Unsure(BoxError),
}

pub(super) use super::lent::Lent;
