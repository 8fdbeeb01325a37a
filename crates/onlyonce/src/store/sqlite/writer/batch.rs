//! One transaction of the writer: what its members ask, judged against what earlier members did.
//!
//! Nothing here is visible to anyone before the commit: the members see each other through
//! `pending`, and memory takes it over in [`Batch::publish`].

use std::collections::HashMap;

use rusqlite::Connection;

use crate::clock::StoreTime;
use crate::record::{Record, Token};
use crate::scope::OperationId;
use crate::store::cas::{self, Effect};
use crate::store::sqlite::file::connection;
use crate::store::sqlite::index::id_hash::Keyed;
use crate::store::sqlite::index::{Look, View};
use crate::store::sqlite::jobs::{Answer, Checking, Job, Swapping};
use crate::store::sqlite::layout::check_value;
use crate::store::sqlite::layout::meta::Meta;
use crate::store::sqlite::layout::place::Place;
use crate::store::sqlite::layout::routes::Interned;
use crate::store::sqlite::layout::rows::{self, Damage, Found};
use crate::store::sqlite::shared::Shared;
use crate::store::sqlite::writer::Open;
use crate::store::sqlite::writer::member_error::{Trouble, as_refusal};
use crate::store::{Beat, Draft, Fault, Lease, Next, Seen, StoreError, Swap};

pub(crate) struct Batch<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) shared: &'a Shared,
    /// As it will be.
    pub(crate) meta: Meta,
    pub(crate) meta_changed: bool,
    /// Changes when another connection writes the file.
    data_version: i64,
    pub(crate) interned: &'a mut Interned,
    pub(crate) pending: HashMap<OperationId, Pending, Keyed>,
    begun: bool,
}

/// What the batch makes of an id.
#[derive(Clone)]
pub(crate) struct Pending {
    pub(crate) look: Look,
    /// Renewals and moves are no news to those who wait for a record.
    pub(crate) is_news: bool,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(open: &'a mut Open, shared: &'a Shared) -> Self {
        Self {
            db: &open.db,
            shared,
            meta: open.meta.clone(),
            meta_changed: false,
            data_version: open.data_version,
            pending: HashMap::with_hasher(open.interned.keyed),
            interned: &mut open.interned,
            begun: false,
        }
    }

    /// Whether there is anything to commit.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(crate) fn answer(&mut self, job: &Job) -> Result<Answer, Trouble> {
        match job {
            Job::MarkMoved(to, _) => self.mark_moved(to).map(|()| Answer::Done),
            _ if self.meta.moved_to.is_some() => {
                Err(Trouble::Alone(Fault::NotDone(StoreError::Closed)))
            }
            Job::Claim(draft, _) => self.claim(draft).map(Answer::Seen),
            Job::Swap(swap, _) => self.swap(swap).map(Answer::Swap),
            Job::Renew(held, lease, _) => self.renew(held, *lease).map(Answer::Beats),
            Job::CheckValue(checking, _) => self.check_value(checking).map(Answer::CheckValue),
            Job::Sweep(..) => Err(Trouble::Alone(Fault::NotDone(StoreError::Busy))),
        }
    }

    /// Like [`Batch::answer`], but leaves nothing behind of a member that fails.
    pub(crate) fn answer_apart(&mut self, job: &Job) -> Result<Answer, Trouble> {
        self.begin()?;
        self.step("SAVEPOINT member")?;
        let (meta, interned) = (self.meta.clone(), self.interned.len());
        let answer = self.answer(job);
        if let Err(Trouble::Member(error)) = answer {
            self.step("ROLLBACK TO member")?;
            self.step("RELEASE member")?;
            self.meta = meta;
            self.interned.truncate(interned);
            return Err(Trouble::Alone(Fault::NotDone(as_refusal(error))));
        }
        self.step("RELEASE member")?;
        answer
    }

    fn claim(&mut self, draft: &Draft) -> Result<Seen, Trouble> {
        let current = self.current(&draft.id)?;
        let now = self.shared.time.now();
        let record = match cas::claim(current.record.as_ref(), draft, now) {
            Some(record) => {
                self.append(draft.id, &record)?;
                Some(record)
            }
            None => current.record,
        };
        let mine = cas::is_mine(record.as_ref(), draft);
        Ok(self.seen(record, mine, now))
    }

    fn swap(&mut self, Swapping { id, guard, to }: &Swapping) -> Result<Swap, Trouble> {
        let current = self.current(id)?;
        let now = self.shared.time.now();
        match cas::swap(current.record.as_ref(), guard, to, now) {
            Effect::Stale => Ok(Swap::Stale(Box::new(self.seen(current.record, false, now)))),
            Effect::Already(revision) => Ok(Swap::Done(revision)),
            Effect::Delete(revision) => {
                self.delete(*id, &current)?;
                Ok(Swap::Done(revision))
            }
            Effect::Write(record) => {
                let revision = record.revision();
                match to {
                    Next::Running(_) => self.take(*id, &current, &record)?,
                    _ => self.update(*id, &current, *record)?,
                }
                Ok(Swap::Done(revision))
            }
        }
    }

    /// In memory only: a lease dies with this process.
    fn renew(&mut self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Trouble> {
        let mut beats = Vec::with_capacity(held.len());
        for (id, token) in held {
            let current = self.current_in_memory(id);
            let now = self.shared.time.now();
            let renewed = cas::renew(current.record.as_ref(), *token, lease, now);
            beats.push(if renewed.is_some() { Beat::Kept } else { Beat::Lost });
            if let Some((record, place)) = renewed.zip(current.place) {
                self.put(*id, place, record, false);
            }
        }
        Ok(beats)
    }

    fn check_value(&mut self, checking: &Checking) -> Result<Option<String>, Trouble> {
        let Checking { name, from, to } = checking;
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

    /// The last thing that is written here.
    fn mark_moved(&mut self, to: &str) -> Result<(), Trouble> {
        self.begin()?;
        self.meta.moved_to = Some(to.to_owned());
        self.meta_changed = true;
        Ok(())
    }

    /// Writes what the file says of itself, if it changed.
    pub(crate) fn write_meta(&mut self) -> rusqlite::Result<()> {
        if !self.meta_changed {
            return Ok(());
        }
        self.meta.write(self.db)
    }

    /// What the id is to the next member.
    pub(crate) fn current(&self, id: &OperationId) -> Result<Look, Trouble> {
        let look = self.current_in_memory(id);
        match look {
            Look { place: Some(place), record: None } => self.read(id, place),
            look => Ok(look),
        }
    }

    /// Where the id lies for the next member.
    pub(crate) fn place(&self, id: &OperationId) -> Option<Place> {
        match self.pending.get(id) {
            Some(pending) => pending.look.place,
            None => self.shared.view().index.get(id).map(|slot| slot.place),
        }
    }

    pub(crate) fn routes(&self) -> &rows::Routes {
        &self.interned.routes
    }

    fn current_in_memory(&self, id: &OperationId) -> Look {
        match self.pending.get(id) {
            Some(pending) => pending.look.clone(),
            None => self.shared.view().look(id),
        }
    }

    fn read(&self, id: &OperationId, place: Place) -> Result<Look, Trouble> {
        let found = rows::read(self.db, place, &self.interned.routes).map_err(Trouble::Whole)?;
        match found {
            Found::Record(found, record) if found == *id => {
                Ok(Look { place: Some(place), record: Some(*record) })
            }
            Found::Damaged(damage) => Err(Trouble::Alone(Fault::NotDone(damage.into()))),
            _ => Err(Trouble::Alone(Fault::NotDone(
                Damage::new(place, "it holds something else").into(),
            ))),
        }
    }

    pub(crate) fn begin(&mut self) -> Result<(), Trouble> {
        if !self.begun {
            self.step("BEGIN IMMEDIATE")?;
            self.begun = true;
            self.demand_alone()?;
        }
        Ok(())
    }

    /// Nobody else writes the file. If someone did, memory is no longer what the file is.
    fn demand_alone(&self) -> Result<(), Trouble> {
        let version = connection::data_version(self.db).map_err(Trouble::Whole)?;
        if version == self.data_version {
            return Ok(());
        }
        Err(Trouble::Outside)
    }

    fn step(&self, sql: &str) -> Result<(), Trouble> {
        let run = self.db.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        run.map(drop).map_err(Trouble::Whole)
    }

    fn seen(&self, record: Option<Record>, mine: bool, now: StoreTime) -> Seen {
        Seen { record, mine, now }
    }

    /// After the commit: memory becomes what the file is. Returns the file's word on itself.
    pub(crate) fn publish(self) -> Meta {
        let mut view = self.shared.view_mut();
        if view.routes.len() != self.interned.routes.len() {
            view.routes = self.interned.routes.clone();
        }
        let mut news = Vec::with_capacity(self.pending.len());
        for (id, pending) in self.pending {
            apply(&mut view, id, pending.look);
            news.extend(pending.is_news.then_some(id));
        }
        drop(view);
        for id in news {
            self.shared.wakers.wake(id);
        }
        self.meta
    }
}

fn apply(view: &mut View, id: OperationId, look: Look) {
    match look {
        Look { place: None, .. } => view.remove(&id),
        Look { place: Some(place), record: Some(record) } => view.put(id, place, record),
        Look { place: Some(place), record: None } => drop(view.put_on_disk(id, place)),
    }
}
