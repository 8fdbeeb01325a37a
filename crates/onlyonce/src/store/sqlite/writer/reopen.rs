//! After an I/O error: closes every connection and opens the file again, with the lock kept.
//!
//! After a failed fsync nobody knows which pages are on disk, and the kernel may report the next fsync as good
//! although pages were lost. So the whole WAL is written to the file again and emptied before anything is answered.

use std::time::Duration;

use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::file::connection;
use crate::store::sqlite::file::open;
use crate::store::sqlite::queue::Wait;
use crate::store::sqlite::shared::Status;
use crate::store::sqlite::writer::open_file::OpenFile;
use crate::store::sqlite::writer::{BATCH_JOBS_MAX, Writer, down};

impl Writer {
    /// Tries to reopen the file until that succeeds, the file was replaced, or the store is closed. Jobs are refused
    /// meanwhile.
    pub(crate) fn reopen_after_error(&mut self) {
        self.shared.set_status(Status::Down);
        self.drop_connections();
        let mut pause = PAUSE_FIRST;
        let mut jobs = Vec::new();
        loop {
            if !self.owned.is_same_file(self.identity) {
                return self.give_up();
            }
            if self.reopen().is_ok() {
                return self.shared.set_status(Status::Up);
            }
            let more = self.shared.jobs.take(&mut jobs, BATCH_JOBS_MAX, Wait::AtMost(pause));
            self.refuse(&mut jobs, down);
            if !more {
                return;
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Unlike a first open, this leaves running records running: their owners live in this process.
    fn reopen(&mut self) -> Result<(), SqliteOpenError> {
        connection::empty_wal_exclusively(self.owned.path())?;
        let mut opened = open::open(self.owned.path(), self.shared.audit.is_some())?;
        open::keep_leases(&mut opened, &self.shared.index());
        let (open, identity) = OpenFile::connect(&self.shared, &self.owned, opened)?;
        self.identity = identity;
        self.open = Some(open);
        Ok(())
    }
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
