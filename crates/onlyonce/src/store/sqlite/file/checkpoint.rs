//! Checkpoints: the WAL is written back to the file in the background, and restarted by the writer between two batches.
//!
//! SQLite would checkpoint inside whichever commit makes the WAL long, and that commit would wait for it. Here a thread
//! of its own does the writing, and the writer only finishes what is left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::store::sqlite::file::connection::{self, BUSY_WAIT, Checkpoint};
use crate::store::sqlite::layout::schema;
use crate::store::sqlite::queue::Wait;
use crate::store::sqlite::shared::{Shared, lock};

/// What the writer knows of the WAL: how long it is, and when the next checkpoint is due.
pub(crate) struct Wal {
    pages: i32,
    /// A commit has added pages since they were counted.
    is_longer: bool,
    /// The number of pages from which on the next checkpoint is due.
    due: i32,
    /// The checkpointer is at work.
    under_way: bool,
}

/// What the writer does next about the WAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Ask the checkpointer to write the WAL back.
    Start,
    /// Write back the rest and restart the WAL.
    Finish,
}

impl Wal {
    /// The empty WAL of a file that was just opened.
    pub(crate) fn empty() -> Self {
        Self { pages: 0, is_longer: false, due: START_PAGES, under_way: false }
    }

    pub(crate) fn note_commit(&mut self) {
        self.is_longer = true;
    }

    /// Counts the pages after a commit. Only then: right after a restart SQLite still tells the old number.
    pub(crate) fn count_pages(&mut self, db: &Connection) -> rusqlite::Result<()> {
        if std::mem::take(&mut self.is_longer) {
            self.pages = connection::checkpoint(db, Checkpoint::Noop)?;
        }
        Ok(())
    }

    /// Whether no more may be written before the WAL is restarted.
    pub(crate) fn is_full(&self) -> bool {
        self.pages >= PAGES_MAX
    }

    /// `checkpointed`: the checkpointer has finished its part.
    pub(crate) fn step(&mut self, checkpointed: bool) -> Step {
        if checkpointed && self.under_way {
            self.under_way = false;
            return Step::Finish;
        }
        if self.under_way || self.pages < self.due.min(PAGES_MAX) {
            return Step::Nothing;
        }
        self.under_way = true;
        Step::Start
    }

    /// Writes back the rest, so that the next commit starts at the beginning of the WAL. Another program that reads the
    /// file may prevent that: then it is tried again after [`AGAIN_PAGES`], and from [`PAGES_MAX`] on writes are refused.
    pub(crate) fn finish(&mut self, db: &Connection) -> rusqlite::Result<()> {
        db.busy_timeout(FINISH_WAIT)?;
        let done = connection::checkpoint(db, Checkpoint::Restart);
        db.busy_timeout(BUSY_WAIT)?;
        match done {
            Ok(_) => {
                self.pages = 0;
                self.due = START_PAGES;
                Ok(())
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                self.due = self.pages.saturating_add(AGAIN_PAGES);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The checkpointer thread.
pub(crate) fn run(shared: &Shared) {
    let mut work = Vec::new();
    while shared.checkpoints.take(&mut work, 1, Wait::Forever) {
        work.clear();
        if let Some(db) = &*lock(&shared.checkpointer) {
            let written = (0..PASSES).try_for_each(|_| write_back(db));
            let failed = written.is_err();
            shared.io_failed.fetch_or(failed, Ordering::AcqRel);
        }
        shared.checkpointed.store(true, Ordering::Release);
        shared.jobs.nudge();
    }
}

/// One pass. After an error there must be no second one: it would skip the pages that the first one lost, and the WAL,
/// the only copy of them, would be restarted.
fn write_back(db: &Connection) -> rusqlite::Result<()> {
    match connection::checkpoint(db, Checkpoint::Passive) {
        Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => Err(error),
        _ => Ok(()),
    }
}

/// 8 MiB: so seldom that fewer than one commit in a hundred waits for the end of a checkpoint.
const START_PAGES: i32 = ((8 << 20) / schema::PAGE_BYTES) as i32;
/// How long the WAL gets as a rule: what is appended during a checkpoint included.
pub(crate) const WAL_BYTES: u64 = START_PAGES as u64 * schema::PAGE_BYTES as u64 / 4 * 5;
/// How many more pages until a checkpoint that a reader prevented is tried again.
const AGAIN_PAGES: i32 = START_PAGES / 2;
/// Passes of the checkpointer. The second one writes what came during the first, so that the writer has little left.
const PASSES: usize = 2;
/// 256 MiB: if the WAL cannot be restarted by then, writes are refused.
const PAGES_MAX: i32 = START_PAGES * 32;
/// How long the writer waits for other readers of the WAL.
const FINISH_WAIT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn wal(pages: i32) -> Wal {
        Wal { pages, ..Wal::empty() }
    }

    #[test]
    fn a_long_wal_is_checkpointed_and_then_restarted() {
        assert_eq!(wal(START_PAGES - 1).step(false), Step::Nothing);
        let mut long = wal(START_PAGES);
        assert_eq!(long.step(false), Step::Start);
        assert_eq!(long.step(false), Step::Nothing);
        assert_eq!(long.step(true), Step::Finish);
    }

    // threat E2
    #[test]
    fn a_wal_that_a_reader_pins_stops_growing_and_is_still_tried() {
        let mut pinned = wal(PAGES_MAX);
        pinned.due = PAGES_MAX + AGAIN_PAGES;
        assert!(pinned.is_full());
        assert_eq!(pinned.step(false), Step::Start);
        assert_eq!(pinned.step(true), Step::Finish);
        assert_eq!(pinned.step(false), Step::Start);
    }
}
