//! The log is written back in the background, and begun anew by the writer between two batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode};

use crate::store::sqlite::layout::schema;
use crate::store::sqlite::queue::Wait;
use crate::store::sqlite::shared::{Shared, lock};

/// What the writer knows of the log.
pub(crate) struct Log {
    /// Pages in it, as of the last commit.
    pages: Arc<AtomicI32>,
    /// From how many pages on the next step is due.
    due: i32,
    under_way: bool,
}

/// What the writer does next about the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Let the checkpointer write it back.
    Start,
    /// Write back the rest and begin anew.
    Finish,
}

impl Log {
    /// Counts the pages that `db` logs.
    pub(crate) fn watch(db: &mut Connection) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicI32::new(0));
        let counted = pages.clone();
        db.wal_hook(Some(move |_: &mut _, count| {
            counted.store(count, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, due: START_PAGES, under_way: false })
    }

    pub(crate) fn is_full(&self) -> bool {
        self.pages.load(Ordering::Relaxed) >= PAGES_MAX
    }

    /// `checkpointed`: the checkpointer has done its part.
    pub(crate) fn step(&mut self, checkpointed: bool) -> Step {
        if checkpointed && self.under_way {
            self.under_way = false;
            return Step::Finish;
        }
        if self.under_way || self.pages.load(Ordering::Relaxed) < self.due.min(PAGES_MAX) {
            return Step::Nothing;
        }
        self.under_way = true;
        Step::Start
    }

    /// Writes back the rest, so that the next commit begins the log anew. An outside reader may
    /// prevent that: then again after some more pages, until there are too many.
    pub(crate) fn finish(&mut self, db: &Connection) -> rusqlite::Result<()> {
        db.busy_timeout(FINISH_WAIT)?;
        let done = db.wal_checkpoint_v2(None::<&str>, CheckpointMode::RESTART);
        db.busy_timeout(crate::store::sqlite::file::connection::BUSY_WAIT)?;
        match done {
            Ok(_) => {
                self.pages.store(0, Ordering::Relaxed);
                self.due = START_PAGES;
                Ok(())
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                self.due = self.pages.load(Ordering::Relaxed).saturating_add(AGAIN_PAGES);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The checkpointer's thread.
pub(crate) fn run(shared: &Shared) {
    let mut work = Vec::new();
    while shared.checkpoints.take(&mut work, 1, Wait::Forever) {
        work.clear();
        if let Some(db) = &*lock(&shared.checkpointer) {
            let written = (0..PASSES).try_for_each(|_| write_back(db));
            let failed = written.is_err();
            shared.disk_failed.fetch_or(failed, Ordering::AcqRel);
        }
        shared.checkpointed.store(true, Ordering::Release);
        shared.jobs.nudge();
    }
}

/// Not again after an error: the next pass would skip what this one lost, and the log would be begun anew.
fn write_back(db: &Connection) -> rusqlite::Result<()> {
    match db.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE) {
        Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => Err(error),
        _ => Ok(()),
    }
}

/// 32 MiB of pages: seldom enough that one commit in a hundred does not meet it.
const START_PAGES: i32 = ((8 << 20) / schema::PAGE_BYTES) as i32;
/// How large the log grows while the first part of it is written back.
pub(crate) const LOG_BYTES: u64 = START_PAGES as u64 * schema::PAGE_BYTES as u64 / 4 * 5;
/// How many more pages until the log is tried again.
const AGAIN_PAGES: i32 = START_PAGES / 2;
/// Each pass leaves the next one less: the writer then finishes quickly.
const PASSES: usize = 2;
/// 1 GiB of pages: if the log cannot be begun anew by then, nothing more is written.
const PAGES_MAX: i32 = START_PAGES * 32;
/// How long the writer waits for readers of the log to leave it.
const FINISH_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn log(pages: i32) -> Log {
        Log { pages: Arc::new(AtomicI32::new(pages)), due: START_PAGES, under_way: false }
    }

    #[test]
    fn a_log_is_written_back_once_it_is_long_and_finished_once_that_is_done() {
        assert_eq!(log(START_PAGES - 1).step(false), Step::Nothing);
        let mut long = log(START_PAGES);
        assert_eq!(long.step(false), Step::Start);
        assert_eq!(long.step(false), Step::Nothing);
        assert_eq!(long.step(true), Step::Finish);
    }

    // threat E2
    #[test]
    fn a_log_that_a_reader_holds_stops_growing_and_is_still_tried() {
        let mut held = log(PAGES_MAX);
        held.due = PAGES_MAX + AGAIN_PAGES;
        assert!(held.is_full());
        assert_eq!(held.step(false), Step::Start);
        assert_eq!(held.step(true), Step::Finish);
        assert_eq!(held.step(false), Step::Start);
    }
}
