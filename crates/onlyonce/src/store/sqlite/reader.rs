//! The reader thread: reads completed records, several per read transaction, without waiting for the writer.

pub(super) mod listing;

use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use super::index::Lookup;
use super::jobs::ReadJob;
use super::layout::rows::{self, Damage, Found, unavailable};
use super::queue::Wait;
use super::shared::{Shared, Status, lock};
use crate::record::{Record, StateKind};
use crate::scope::OperationId;
use crate::store::{Fault, StoreError};

pub(super) fn run(shared: &Shared) {
    let _exit = CloseOnExit(shared);
    let mut reads = Vec::new();
    let mut more = true;
    while more {
        more = shared.reads.take(&mut reads, READS_MAX, Wait::Forever);
        serve(shared, &mut reads);
    }
}

/// Answers what is queued when the thread ends, by a panic too.
struct CloseOnExit<'a>(&'a Shared);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        self.0.reads.close();
        let mut left = Vec::new();
        while self.0.reads.take(&mut left, READS_MAX, Wait::No) {}
        left.into_iter().for_each(|read| read.fail(Fault::NotDone(StoreError::Closed)));
    }
}

fn serve(shared: &Shared, reads: &mut Vec<ReadJob>) {
    let db = lock(&shared.reader);
    let Some(db) = &*db else {
        let status = if shared.jobs.is_closed() { Status::Closed } else { Status::Down };
        reads.drain(..).for_each(|read| read.fail(Fault::NotDone(status.error())));
        return;
    };
    // If BEGIN fails, each read below reports its own error.
    drop(db.execute_batch("BEGIN"));
    for read in reads.drain(..) {
        match read {
            ReadJob::One(id, reply) => {
                let found = find(shared, db, id).map(|record| shared.seen(record, false));
                drop(reply.send(found));
            }
            ReadJob::Page(query, reply) => drop(reply.send(listing::page(shared, db, &query))),
            ReadJob::Trail(read) => read(Ok(db)),
        }
    }
    if !db.is_autocommit() {
        drop(db.execute_batch("COMMIT"));
    }
}

/// The record of `id`. The index may be older than the file for a moment, while the writer publishes a commit, or newer
/// than the snapshot of this read transaction. Then the row is not the one that the index means, and both are read again.
fn find(shared: &Shared, db: &Connection, id: OperationId) -> Result<Option<Record>, Fault> {
    let mut place = None;
    for again in 0..LOOKUPS_MAX {
        let lookup = shared.index().lookup(&id);
        let Lookup { place: Some(at), record: None } = lookup else {
            return Ok(lookup.record);
        };
        if again > 0 {
            renew_snapshot(db).map_err(not_done)?;
        }
        let found = rows::read(db, at, &shared.index().routes).map_err(not_done)?;
        match found {
            Found::Record(found, record)
                if found == id && record.state.kind() == StateKind::Completed =>
            {
                return Ok(Some(*record));
            }
            Found::Damaged(damage) => return Err(Fault::NotDone(damage.into())),
            _ => place = Some(at),
        }
        if again > 0 {
            thread::park_timeout(LOOKUP_PAUSE);
        }
    }
    let lost = place.map(|place| Damage::new(place, "it is not there"));
    Err(Fault::NotDone(lost.map_or(StoreError::Busy, StoreError::from)))
}

fn renew_snapshot(db: &Connection) -> rusqlite::Result<()> {
    if !db.is_autocommit() {
        db.execute_batch("COMMIT")?;
    }
    db.execute_batch("BEGIN")
}

fn not_done(error: rusqlite::Error) -> Fault {
    Fault::NotDone(unavailable(error))
}

/// The most reads in one read transaction.
const READS_MAX: usize = 256;
/// How often a record is read again while the writer publishes a commit.
const LOOKUPS_MAX: usize = 50;
const LOOKUP_PAUSE: Duration = Duration::from_millis(1);
