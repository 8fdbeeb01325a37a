//! What the writer has of an open file: its connection, and what it keeps in memory beside the index.

use rusqlite::Connection;

use crate::store::audit::Chain;
use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::file::checkpoint::{WAL_BYTES, Wal};
use crate::store::sqlite::file::connection;
use crate::store::sqlite::file::open::Opened;
use crate::store::sqlite::file::ownership::{FileIdentity, OwnedFile};
use crate::store::sqlite::layout::meta::Meta;
use crate::store::sqlite::layout::routes::Routes;
use crate::store::sqlite::shared::{Shared, lock};

pub(crate) struct OpenFile {
    pub(crate) db: Connection,
    /// The meta row as of the last commit.
    pub(crate) meta: Meta,
    /// Like those of the index, plus those of the open batch.
    pub(crate) routes: Routes,
    pub(crate) wal: Wal,
    /// Changes when another program writes the file: see [`connection::data_version`].
    pub(crate) data_version: i64,
    /// The end of the audit trail as of the last commit; `None` if none is kept.
    pub(crate) chain: Option<Chain>,
}

impl OpenFile {
    /// Opens the connections of the reader and the checkpointer and publishes the index.
    pub(crate) fn connect(
        shared: &Shared,
        owned: &OwnedFile,
        opened: Opened,
    ) -> Result<(Self, FileIdentity), SqliteOpenError> {
        let Opened { db, meta, index, chain } = opened;
        let path = owned.path();
        let failed = |error| SqliteOpenError::engine(path, error);
        let (reader, checkpointer) = (connection::readable(path)?, connection::writable(path)?);
        owned.reserve_wal(WAL_BYTES);
        owned.sync_names()?;
        let identity = owned.identity().map_err(|error| SqliteOpenError::io(path, error))?;
        let data_version = connection::data_version(&db).map_err(failed)?;
        let routes = index.routes.clone();
        *shared.index_mut() = index;
        *lock(&shared.reader) = Some(reader);
        *lock(&shared.checkpointer) = Some(checkpointer);
        Ok((Self { db, meta, routes, wal: Wal::empty(), data_version, chain }, identity))
    }

    /// Asks the checkpointer to write the WAL back. The meta row goes first, so that damage to the rows that it names
    /// is noticed at the next open.
    pub(crate) fn start_checkpoint(&self, shared: &Shared) -> rusqlite::Result<()> {
        self.meta.write(&self.db)?;
        // A full queue means that a checkpoint waits already.
        drop(shared.checkpoints.push(()));
        Ok(())
    }
}
