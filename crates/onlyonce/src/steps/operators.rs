//! Operations of several steps, for operators: find them, see why one does not go on, retry or settle it.

#[cfg(feature = "postgres")]
mod in_postgres;
#[cfg(feature = "sqlite")]
mod in_sqlite;

use std::fmt;

#[cfg(feature = "postgres")]
use self::in_postgres::InPostgres;
#[cfg(feature = "sqlite")]
use self::in_sqlite::InSqlite;
use super::error::told;
use super::{StepsError, StepsState};
use crate::clock::StoreTime;
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresOpenError;
use crate::transaction::Reply;

/// The operations of a database, for operators.
///
/// A change that is not made because of the state of the operation is `false`, never an error: look at it again.
#[derive(Debug)]
pub struct Operators(Place);

#[derive(Debug)]
enum Place {
    #[cfg(feature = "postgres")]
    Postgres(Box<InPostgres>),
    #[cfg(feature = "sqlite")]
    Sqlite(InSqlite),
}

/// Calls the method of the place.
macro_rules! at_place {
    ($self:ident.$method:ident($($argument:expr),*)) => {
        match &$self.0 {
            #[cfg(feature = "postgres")]
            Place::Postgres(place) => place.$method($($argument),*).await,
            #[cfg(feature = "sqlite")]
            Place::Sqlite(place) => place.$method($($argument),*).await,
        }
    };
}

impl Operators {
    /// Connects to the Postgres database at `url`, which is that of
    /// [`PostgresStore::open`](crate::store::postgres::PostgresStore::open).
    ///
    /// # Errors
    /// When the server cannot be reached, or is not one that keeps what it commits: see [`PostgresOpenError`].
    #[cfg(feature = "postgres")]
    pub async fn open(url: &str) -> Result<Self, PostgresOpenError> {
        Ok(Self(Place::Postgres(Box::new(InPostgres::open(url).await?))))
    }

    /// Looks at the SQLite file of `connection`. Give it a `busy_timeout`.
    ///
    /// # Errors
    /// [`StepsError::OtherVersion`] if another version has made the tables.
    #[cfg(feature = "sqlite")]
    pub fn in_file(connection: rusqlite::Connection) -> Result<Self, StepsError> {
        Ok(Self(Place::Sqlite(InSqlite::new(connection)?)))
    }

    /// The operations that match, those first that have not changed for longest: at most 100. The next page is after the last
    /// one of this page.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn list(
        &self,
        filter: StepsFilter<'_>,
        after: Option<&StoredSteps>,
    ) -> Result<Vec<StoredSteps>, StepsError> {
        at_place!(self.list(filter, after))
    }

    /// One operation, with its points and what their steps remembered.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn show(
        &self,
        id: &str,
    ) -> Result<Option<(StoredSteps, Vec<StoredPoint>)>, StepsError> {
        let filter = StepsFilter { id: Some(id), ..StepsFilter::default() };
        let Some(found) = at_place!(self.list(filter, None))?.pop() else { return Ok(None) };
        let points = at_place!(self.points(&found.id))?;
        Ok(Some((found, points)))
    }

    /// Makes an operation due now, with all of its attempts: one that waits, is stuck, or is unknown. A completer takes it, or
    /// the next call of its client.
    ///
    /// One with a call or a step in doubt is retried only if you say that it was not done: then it is done again. A repeatable
    /// call is forgotten, too: the program may then ask for another one at its place.
    ///
    /// # Errors
    /// If the database does not answer: look at the operation before you call again.
    pub async fn retry(&self, id: &str, again: CallAgain, note: &str) -> Result<bool, StepsError> {
        let is_done = at_place!(self.retry(id, again, note))?;
        if is_done {
            tracing::warn!(operation = id, ?again, note, "an operator retries an operation");
        }
        Ok(is_done)
    }

    /// Gives an operation its answer, which every later call gets: one that waits, is stuck or unknown, or whose owner is gone.
    /// Its steps do not go on; an owner that is still there commits nothing more.
    ///
    /// # Errors
    /// If the database does not answer: look at the operation before you call again.
    pub async fn settle(&self, id: &str, reply: &Reply, note: &str) -> Result<bool, StepsError> {
        let is_done = at_place!(self.settle(id, reply, note))?;
        if is_done {
            tracing::warn!(operation = id, note, "an operator settled an operation");
        }
        Ok(is_done)
    }
}

/// What an operator says of the call or step in doubt. The revision is [that](StoredSteps::revision) of the operation which the
/// operator has seen: if it has changed since, perhaps to another doubt, nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallAgain {
    /// Nothing: an operation with something in doubt is not retried.
    No,
    /// It was not done, and is done again; refused while it may still be [on its way](StoredSteps::quiet_until).
    WhenQuiet {
        /// Of the operation.
        revision: i64,
    },
    /// It was not done, and its owner is certainly gone: it is done again now.
    Now {
        /// Of the operation.
        revision: i64,
    },
}

impl CallAgain {
    /// The revision, and whether it is forced.
    fn parts(self) -> (Option<i64>, bool) {
        match self {
            Self::No => (None, false),
            Self::WhenQuiet { revision } => (Some(revision), false),
            Self::Now { revision } => (Some(revision), true),
        }
    }
}

/// Which operations are meant: all that match every given part. Without a state, an id and a key: those that are not completed.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepsFilter<'a> {
    /// In this state.
    pub state: Option<StepsState>,
    /// Of the program with this name.
    pub name: Option<&'a str>,
    /// With this key, of any client.
    pub key: Option<&'a str>,
    /// With this id.
    pub id: Option<&'a str>,
}

impl StepsFilter<'_> {
    fn with_completed(&self) -> bool {
        self.state.is_some() || self.key.is_some() || self.id.is_some()
    }
}

/// An operation, as operators see it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredSteps {
    /// Its id.
    pub id: String,
    /// The name of its program.
    pub name: String,
    /// The client's key.
    pub key: String,
    /// What becomes of it.
    pub state: StepsState,
    /// Since when.
    pub since: StoreTime,
    /// The same in microseconds, as exact as Postgres has it: a page begins after it.
    since_us: i64,
    /// When it was begun.
    pub begun_at: StoreTime,
    /// Running: when its lease ends. Waiting or stuck: when it is tried again.
    pub due_at: Option<StoreTime>,
    /// Attempts since the last committed point.
    pub attempts: u32,
    /// The last committed point.
    pub point: Option<String>,
    /// What may have been done without its point: a call that was begun, or a step that has ended its transaction by itself.
    pub calling: Option<String>,
    /// Whether that is a call which is made again by itself, with the same key. Else it is in doubt if the operation is unknown.
    pub is_repeatable: bool,
    /// Until when it may still be on its way, by an owner that was taken for dead but is only slow: a lease and the longest
    /// attempt after the operation came into its state.
    pub quiet_until: Option<StoreTime>,
    /// Changes with every write but the renewal of a lease.
    pub revision: i64,
    /// Why the last attempt ended.
    pub error: Option<String>,
    /// What an operator has done, and why.
    pub note: Option<String>,
    /// The status of its answer.
    pub status: Option<u16>,
    /// What the program was asked, as JSON.
    pub request: String,
    /// What cannot be read of it, if something cannot: another version has written it, or somebody has changed it by hand. No
    /// owner goes on with it, and its client gets no answer. A state that is not known is told as unknown.
    pub unreadable: Option<String>,
}

/// Without the key and the request: they belong in no log.
impl fmt::Debug for StoredSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("StoredSteps");
        shown.field("id", &self.id).field("name", &self.name).field("state", &self.state);
        shown.field("point", &self.point).field("error", &self.error).finish_non_exhaustive()
    }
}

/// The state as it is told, and what cannot be read of an operation with this state and this kept answer.
fn judged(state: &str, answer: Option<(i32, &str)>) -> (StepsState, Option<String>) {
    let Some(state) = StepsState::of(state) else {
        return (StepsState::Unknown, Some(format!("its state is {state:?}")));
    };
    let kept = answer.map(|(status, headers)| Reply::kept(status, headers, Vec::new()));
    let unreadable = kept.and_then(Result::err).map(|error| told(&error));
    (state, unreadable)
}

/// A committed point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredPoint {
    /// The name of its step.
    pub name: String,
    /// What the step remembered, as JSON.
    pub value: String,
    /// When it was committed.
    pub committed_at: StoreTime,
}

/// Operations on a page.
const PAGE_ROWS_MAX: i64 = 100;
