//! The store file or its WAL is not at its path any more. SQLite still has the files that it opened, and once they are closed, what
//! is only in them is gone.

use std::path::Path;

use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::file::connection::{self, Checkpoint};
use crate::store::sqlite::shared::{Status, lock};
use crate::store::sqlite::writer::Writer;

impl Writer {
    /// After a commit whose files are not at their paths. If only the WAL was removed, all of it is written back to the file, and the
    /// store goes on with a new WAL. Else all records are saved as another file, and the store stays down.
    pub(super) fn recover_replaced(&mut self) {
        self.shared.set_status(Status::Down);
        match self.owned.is_only_wal_gone(self.identity) && self.write_back().is_ok() {
            true => self.reopen_until_up(),
            false => self.rescue(),
        }
    }

    fn write_back(&mut self) -> Result<(), SqliteOpenError> {
        *lock(&self.shared.reader) = None;
        *lock(&self.shared.checkpointer) = None;
        let Some(open) = &self.open else { return Ok(()) };
        let failed = |error| SqliteOpenError::engine(self.owned.path(), error);
        connection::checkpoint(&open.db, Checkpoint::Restart).map_err(failed)?;
        self.owned.expect_no_wal().map_err(|error| SqliteOpenError::io(self.owned.path(), error))
    }

    /// Saves all records as another file, if that can be done, and takes the store down. The next open is refused, and says what to
    /// do with that file.
    pub(super) fn rescue(&mut self) {
        if let Some(open) = &self.open {
            let saved = self.owned.rescue(|into: &Path| {
                let into = into.to_string_lossy();
                let failed = |error| SqliteOpenError::engine(self.owned.path(), error);
                open.db.execute("VACUUM INTO ?1", [into]).map(drop).map_err(failed)
            });
            // Else the note stays, and the next open is refused because of it.
            drop(saved.map(|()| self.owned.expect_no_wal()));
        }
        self.give_up();
    }
}
