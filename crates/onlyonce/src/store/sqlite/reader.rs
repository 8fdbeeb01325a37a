//! The reader's thread: completed records, several per read transaction, never behind a commit.

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
    let _exit = Exit(shared);
    let mut reads = Vec::new();
    let mut more = true;
    while more {
        more = shared.reads.take(&mut reads, READS_MAX, Wait::Forever);
        serve(shared, &mut reads);
    }
}

/// However the thread ends, nobody waits for it any more.
struct Exit<'a>(&'a Shared);

impl Drop for Exit<'_> {
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
    // If the snapshot cannot be taken, each look-up says so by itself.
    drop(db.execute_batch("BEGIN"));
    for read in reads.drain(..) {
        match read {
            ReadJob::One(id, reply) => {
                let found = lookup(shared, db, id).map(|record| shared.seen(record, false));
                drop(reply.send(found));
            }
            ReadJob::Page(query, reply) => drop(reply.send(listing::page(shared, db, &query))),
        }
    }
    if !db.is_autocommit() {
        drop(db.execute_batch("COMMIT"));
    }
}

/// What is there for `id`. Memory may be behind the file for a moment, or ahead of the snapshot: then again.
fn lookup(shared: &Shared, db: &Connection, id: OperationId) -> Result<Option<Record>, Fault> {
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

/// Look-ups per read transaction.
const READS_MAX: usize = 256;
/// How often a record is looked for again while a commit is being taken over by memory.
const LOOKUPS_MAX: usize = 50;
const LOOKUP_PAUSE: Duration = Duration::from_millis(1);
