//! After an error of the disk: every connection is closed and the file opened again, with the lock kept.
//!
//! A failed fsync says nothing about what is on disk, and the next one may lie. So what is left in
//! the log is written back and the log emptied before anything is answered.

use std::time::Duration;

use crate::store::sqlite::error::OpenError;
use crate::store::sqlite::file::checkpoint::{LOG_BYTES, Log};
use crate::store::sqlite::file::connection;
use crate::store::sqlite::file::open::{self, Opened};
use crate::store::sqlite::file::ownership::{Identity, Owned};
use crate::store::sqlite::layout::routes::Interned;
use crate::store::sqlite::queue::Wait;
use crate::store::sqlite::shared::{Shared, Status, lock};
use crate::store::sqlite::writer::{BATCH_JOBS_MAX, Open, Writer, down};

impl Writer {
    /// Opens the file again, and again after a pause that grows, until it succeeds or the store is closed.
    pub(crate) fn recover(&mut self) {
        self.shared.set_status(Status::Down);
        self.drop_connections();
        let mut pause = PAUSE_FIRST;
        let mut jobs = Vec::new();
        loop {
            if !self.owned.is_file(self.identity) {
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

    /// Running records are left alone: their owners live in this process.
    fn reopen(&mut self) -> Result<(), OpenError> {
        connection::empty_log_alone(self.owned.path())?;
        let mut opened = open::open(self.owned.path())?;
        open::keep_leases(&mut opened, &self.shared.view());
        let (open, identity) = connect(&self.shared, &self.owned, opened)?;
        self.identity = identity;
        self.open = Some(open);
        Ok(())
    }
}

/// Gives every thread its connection, and memory what was read.
pub(crate) fn connect(
    shared: &Shared,
    owned: &Owned,
    opened: Opened,
) -> Result<(Open, Identity), OpenError> {
    let Opened { mut db, meta, view } = opened;
    let path = owned.path();
    let log = Log::watch(&mut db).map_err(|error| OpenError::engine(path, error))?;
    let (reader, checkpointer) = (connection::readable(path)?, connection::writable(path)?);
    owned.reserve_log(LOG_BYTES);
    owned.sync_names()?;
    let identity = owned.identity().map_err(|error| OpenError::io(path, error))?;
    let data_version = connection::data_version(&db);
    let data_version = data_version.map_err(|error| OpenError::engine(path, error))?;
    let interned = Interned::new(view.routes.clone());
    *shared.view_mut() = view;
    *lock(&shared.reader) = Some(reader);
    *lock(&shared.checkpointer) = Some(checkpointer);
    Ok((Open { db, meta, interned, log, data_version }, identity))
}

const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
