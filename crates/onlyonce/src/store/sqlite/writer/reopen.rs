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
        match self.owned.is_replaced(self.identity) {
            // Not written back: after an I/O error SQLite may take pages for written that are lost.
            true => self.rescue(),
            false => self.reopen_until_up(),
        }
    }

    pub(super) fn reopen_until_up(&mut self) {
        self.shared.set_status(Status::Down);
        self.drop_connections();
        let mut pause = PAUSE_FIRST;
        let mut jobs = Vec::new();
        loop {
            if !self.owned.is_same_file(self.identity) {
                return self.give_up();
            }
            match self.reopen() {
                Ok(()) => return self.shared.set_status(Status::Up),
                Err(SqliteOpenError::LogLost { .. }) => self.shared.set_status(Status::LogLost),
                Err(_) => self.shared.set_status(Status::Down),
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
        self.owned.check_wal()?;
        connection::empty_wal_exclusively(&mut self.owned)?;
        let mut opened = open::open(&mut self.owned, self.shared.audit.is_some())?;
        open::keep_leases(&mut opened, &self.shared.index());
        let (open, identity) = OpenFile::connect(&self.shared, &self.owned, opened)?;
        self.identity = identity;
        self.open = Some(open);
        Ok(())
    }
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
