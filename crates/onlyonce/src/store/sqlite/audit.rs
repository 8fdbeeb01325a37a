//! The audit trail of a store, and of a file that another process has open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::SqliteStore;
use super::error::SqliteOpenError;
use super::file::ownership::beside;
use super::file::{connection, header};
use super::jobs::{ReadJob, SwapJob, WriteJob};
use super::layout::audit_rows;
use super::layout::rows::unavailable;
use crate::clock::StoreTime;
use crate::event::EventKind;
use crate::scope::OperationId;
use crate::store::audit::{
    Appended, Audit, Calling, ChainRow, EntryPage, EntryQuery, Head, Note, Trail, WriterId,
};
use crate::store::{Draft, Fault, Guard, Next, Seen, Swap};

impl Audit for SqliteStore {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        Box::pin(self.claim_noted(draft, Some(note)))
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        let swap = Box::new(SwapJob { id, guard, to, note: Some(note) });
        Box::pin(self.submit(|reply| WriteJob::Swap(swap, reply)))
    }

    fn append(&self, batch: Arc<Appended>) -> Calling<'_, ()> {
        Box::pin(self.submit(|reply| WriteJob::Append(batch, reply)))
    }

    fn prune(&self, until: StoreTime, limit: usize) -> Calling<'_, bool> {
        Box::pin(self.submit(move |reply| WriteJob::Prune(until, limit, reply)))
    }

    fn keep(&self) -> Duration {
        self.shared.audit.map_or(Duration::ZERO, |options| options.keep)
    }

    fn trail(&self) -> &dyn Trail {
        self
    }
}

impl SqliteStore {
    /// Reads the trail on the reader thread.
    fn read_trail<'a, T: Send + 'static>(
        &'a self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'a + 'static,
    ) -> Calling<'a, T> {
        Box::pin(self.read(|reply| {
            ReadJob::Trail(Box::new(move |db| {
                let answer = db.and_then(|db| read(db).map_err(not_done));
                drop(reply.send(answer));
            }))
        }))
    }
}

impl Trail for SqliteStore {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        self.read_trail(move |db| audit_rows::entries(db, &query))
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        self.read_trail(move |db| audit_rows::count(db, id, kind))
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        self.read_trail(audit_rows::heads)
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        self.read_trail(move |db| audit_rows::chain(db, writer, after, limit))
    }
}

/// The trail of a file that may be in use: it takes no lock, writes nothing, and reads a little at a time, so that a
/// process that has the store open is not held up.
///
/// ```no_run
/// # async fn show() -> Result<(), Box<dyn std::error::Error>> {
/// use onlyonce::store::audit::verify;
/// use onlyonce::store::sqlite::SqliteTrail;
///
/// let trail = SqliteTrail::open("onlyonce.db")?;
/// assert!(verify(&trail, &[]).await?.is_whole());
/// # Ok(())
/// # }
/// ```
pub struct SqliteTrail {
    path: PathBuf,
    db: Mutex<Connection>,
}

impl SqliteTrail {
    /// Opens the file for reading.
    ///
    /// # Errors
    /// If it is not a store of this format, or cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteOpenError> {
        let path = path.as_ref().to_owned();
        let length =
            std::fs::metadata(&path).map_err(|error| SqliteOpenError::io(&path, error))?.len();
        header::check(&path, &beside(&path, "-wal"), length)?;
        let db = connection::read_only(&path)?;
        Ok(Self { path, db: Mutex::new(db) })
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'a,
    ) -> Calling<'a, T> {
        Box::pin(async move {
            let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
            read(&db).map_err(not_done)
        })
    }
}

impl std::fmt::Debug for SqliteTrail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteTrail").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Trail for SqliteTrail {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        self.read(move |db| audit_rows::entries(db, &query))
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        self.read(move |db| audit_rows::count(db, id, kind))
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        self.read(audit_rows::heads)
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        self.read(move |db| audit_rows::chain(db, writer, after, limit))
    }
}

fn not_done(error: rusqlite::Error) -> Fault {
    Fault::NotDone(unavailable(error))
}
