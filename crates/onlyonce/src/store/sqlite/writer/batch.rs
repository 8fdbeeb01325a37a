//! One batch of the writer: its jobs run in one transaction, each on what the earlier ones left.
//!
//! No other thread sees any of this before the commit. The jobs see each other's writes through `pending`, a private
//! overlay on the index; [`Batch::publish`] puts it into the index after the commit.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::clock::StoreTime;
use crate::record::{Record, Token};
use crate::scope::OperationId;
use crate::store::audit::Chain;
use crate::store::cas::{self, Effect};
use crate::store::sqlite::file::connection;
use crate::store::sqlite::index::{Index, Lookup};
use crate::store::sqlite::jobs::{Answer, CheckValueJob, ClaimJob, SwapJob, WriteJob};
use crate::store::sqlite::layout::audit_rows;
use crate::store::sqlite::layout::meta::Meta;
use crate::store::sqlite::layout::place::Place;
use crate::store::sqlite::layout::routes::Routes;
use crate::store::sqlite::layout::rows::{self, Damage, Found};
use crate::store::sqlite::shared::Shared;
use crate::store::sqlite::writer::OpenFile;
use crate::store::sqlite::writer::check_value;
use crate::store::sqlite::writer::job_error::{JobError, require_body_fits, store_error_of};
use crate::store::{Beat, Fault, Lease, Next, Seen, StoreError, Swap};

pub(crate) struct Batch<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) shared: &'a Shared,
    /// The meta row as this batch leaves it.
    pub(crate) meta: Meta,
    pub(crate) meta_changed: bool,
    /// The `data_version` that the index was built from; another one means that another program wrote the file.
    data_version: i64,
    pub(crate) routes: &'a mut Routes,
    pub(crate) pending: HashMap<OperationId, Pending>,
    /// The end of the audit trail as this batch leaves it; `None` if none is kept.
    pub(crate) chain: Option<Chain>,
    /// The end of the audit trail as of the last commit.
    chain_before: Option<Chain>,
    begun: bool,
}

/// What the index will say of an id after the commit.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) lookup: Lookup,
    /// False for a renewal or a move to another row: the record did not change for anyone who waits for it.
    pub(crate) wakes_waiters: bool,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(open: &'a mut OpenFile, shared: &'a Shared) -> Self {
        Self {
            db: &open.db,
            shared,
            meta: open.meta.clone(),
            meta_changed: false,
            data_version: open.data_version,
            pending: HashMap::new(),
            routes: &mut open.routes,
            chain: open.chain,
            chain_before: open.chain,
            begun: false,
        }
    }

    /// Whether a transaction is open, and so must be committed.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(crate) fn answer(&mut self, job: &WriteJob) -> Result<Answer, JobError> {
        match job {
            WriteJob::MarkMoved(to, _) => self.mark_moved(to).map(|()| Answer::Done),
            _ if self.meta.moved_to.is_some() => {
                Err(JobError::Job(Fault::NotDone(StoreError::Closed)))
            }
            WriteJob::Claim(claim, _) => self.claim(claim).map(Answer::Seen),
            WriteJob::Swap(swap, _) => self.swap(swap).map(Answer::Swap),
            WriteJob::Renew(leases, lease, _) => self.renew(leases, *lease).map(Answer::Beats),
            WriteJob::CheckValue(checking, _) => self.check_value(checking).map(Answer::CheckValue),
            WriteJob::Append(batch, _) => self.append_notes(batch).map(|()| Answer::Done),
            WriteJob::Prune(until, limit, _) => self.prune(*until, *limit).map(Answer::Pruned),
            WriteJob::Sweep(..) => Err(JobError::Job(Fault::NotDone(StoreError::Busy))),
        }
    }

    /// Like [`Batch::answer`], in a savepoint: the writes of a job that fails are rolled back.
    pub(crate) fn answer_in_savepoint(&mut self, job: &WriteJob) -> Result<Answer, JobError> {
        self.begin()?;
        self.execute("SAVEPOINT job")?;
        let (meta, routes, chain) = (self.meta.clone(), self.routes.len(), self.chain);
        let answer = self.answer(job);
        if let Err(JobError::Statement(error)) = answer {
            self.execute("ROLLBACK TO job")?;
            self.execute("RELEASE job")?;
            self.meta = meta;
            self.chain = chain;
            self.routes.truncate(routes);
            return Err(JobError::Job(Fault::NotDone(store_error_of(error))));
        }
        self.execute("RELEASE job")?;
        answer
    }

    fn claim(&mut self, ClaimJob { draft, note }: &ClaimJob) -> Result<Seen, JobError> {
        let current = self.lookup(&draft.id)?;
        let now = self.shared.time.now();
        let record = match cas::claim(current.record.as_ref(), draft, now) {
            Some(record) => {
                self.note(now, note.as_deref())?;
                self.append(draft.id, &record)?;
                Some(record)
            }
            None => current.record,
        };
        let mine = cas::is_mine(record.as_ref(), draft);
        Ok(self.seen(record, mine, now))
    }

    fn swap(&mut self, SwapJob { id, guard, to, note }: &SwapJob) -> Result<Swap, JobError> {
        let current = self.lookup(id)?;
        let now = self.shared.time.now();
        match cas::swap(current.record.as_ref(), guard, to, now) {
            Effect::Stale => Ok(Swap::Stale(Box::new(self.seen(current.record, false, now)))),
            Effect::Already(revision) => Ok(Swap::Done(revision)),
            Effect::Delete(revision) => {
                self.note(now, note.as_deref())?;
                self.delete(*id, &current)?;
                Ok(Swap::Done(revision))
            }
            Effect::Write(record) => {
                let revision = record.revision();
                // A job that is refused must have written nothing, and so told nothing.
                require_body_fits(&record)?;
                self.note(now, note.as_deref())?;
                match to {
                    Next::Running(_) => self.take(*id, &current, &record)?,
                    Next::Replaced(_) => self.replace(*id, &current, *record)?,
                    _ => self.update(*id, &current, *record)?,
                }
                Ok(Swap::Done(revision))
            }
        }
    }

    /// Renews leases in memory only: they end with this process, and the next open makes its running records unknown.
    fn renew(
        &mut self,
        leases: &[(OperationId, Token)],
        lease: Lease,
    ) -> Result<Vec<Beat>, JobError> {
        let mut beats = Vec::with_capacity(leases.len());
        for (id, token) in leases {
            let current = self.lookup_in_memory(id);
            let now = self.shared.time.now();
            let renewed = cas::renew(current.record.as_ref(), *token, lease, now);
            beats.push(if renewed.is_some() { Beat::Kept } else { Beat::Lost });
            if let Some((record, place)) = renewed.zip(current.place) {
                self.put(*id, place, record, false);
            }
        }
        Ok(beats)
    }

    fn check_value(&mut self, checking: &CheckValueJob) -> Result<Option<String>, JobError> {
        let CheckValueJob { name, from, to } = checking;
        let kept = check_value::read(self.db, name)?;
        match to {
            Some(to) if kept == *from => {
                self.begin()?;
                check_value::write(self.db, name, to)?;
                Ok(Some(to.clone()))
            }
            _ => Ok(kept),
        }
    }

    /// Marks the file as moved. Every job after this one is refused.
    fn mark_moved(&mut self, to: &str) -> Result<(), JobError> {
        self.begin()?;
        self.meta.moved_to = Some(to.to_owned());
        self.meta_changed = true;
        Ok(())
    }

    /// Writes the meta row and the head of the audit trail, if this batch changed them.
    pub(crate) fn write_meta(&mut self) -> rusqlite::Result<()> {
        if let Some(chain) = self.chain.filter(|_| self.chain != self.chain_before) {
            audit_rows::write_chain(self.db, &chain)?;
        }
        if !self.meta_changed {
            return Ok(());
        }
        self.meta.write(self.db)
    }

    /// The record of `id` as the jobs before this one left it; read from its row if the index does not have it.
    pub(crate) fn lookup(&self, id: &OperationId) -> Result<Lookup, JobError> {
        let lookup = self.lookup_in_memory(id);
        match lookup {
            Lookup { place: Some(place), record: None } => self.read(id, place),
            lookup => Ok(lookup),
        }
    }

    /// The place of the record of `id`, as the jobs before this one left it.
    pub(crate) fn place(&self, id: &OperationId) -> Option<Place> {
        match self.pending.get(id) {
            Some(pending) => pending.lookup.place,
            None => self.shared.index().ids.get(id).map(|slot| slot.place),
        }
    }

    fn lookup_in_memory(&self, id: &OperationId) -> Lookup {
        match self.pending.get(id) {
            Some(pending) => pending.lookup.clone(),
            None => self.shared.index().lookup(id),
        }
    }

    fn read(&self, id: &OperationId, place: Place) -> Result<Lookup, JobError> {
        let found = rows::read(self.db, place, self.routes).map_err(JobError::Transaction)?;
        match found {
            Found::Record(found, record) if found == *id => {
                Ok(Lookup { place: Some(place), record: Some(*record) })
            }
            Found::Damaged(damage) => Err(JobError::Job(Fault::NotDone(damage.into()))),
            _ => Err(JobError::Job(Fault::NotDone(
                Damage::new(place, "it holds something else").into(),
            ))),
        }
    }

    pub(crate) fn begin(&mut self) -> Result<(), JobError> {
        if !self.begun {
            self.execute("BEGIN IMMEDIATE")?;
            self.begun = true;
            self.require_no_outside_write()?;
        }
        Ok(())
    }

    /// Refuses to go on if another program wrote the file: the index no longer matches it.
    fn require_no_outside_write(&self) -> Result<(), JobError> {
        let version = connection::data_version(self.db).map_err(JobError::Transaction)?;
        if version == self.data_version {
            return Ok(());
        }
        Err(JobError::OutsideWrite)
    }

    fn execute(&self, sql: &str) -> Result<(), JobError> {
        let run = self.db.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        run.map(drop).map_err(JobError::Transaction)
    }

    fn seen(&self, record: Option<Record>, mine: bool, now: StoreTime) -> Seen {
        Seen { record, mine, now }
    }

    /// After the commit: updates the index, wakes those who wait for a changed record, and returns the new meta row.
    pub(crate) fn publish(self) -> Meta {
        let mut index = self.shared.index_mut();
        if index.routes.len() != self.routes.len() {
            index.routes = self.routes.clone();
        }
        let mut changed = Vec::with_capacity(self.pending.len());
        for (id, pending) in self.pending {
            apply(&mut index, id, pending.lookup);
            changed.extend(pending.wakes_waiters.then_some(id));
        }
        drop(index);
        for id in changed {
            self.shared.wakers.wake(id);
        }
        self.meta
    }
}

fn apply(index: &mut Index, id: OperationId, lookup: Lookup) {
    match lookup {
        Lookup { place: None, .. } => index.remove(&id),
        Lookup { place: Some(place), record: Some(record) } => index.put(id, place, record),
        Lookup { place: Some(place), record: None } => drop(index.put_unread(id, place)),
    }
}
