//! What a batch writes: rows appended, updated in place, buried, and carried to the new end.

use std::sync::Arc;

use crate::record::{Record, State, StateKind};
use crate::scope::OperationId;
use crate::store::sqlite::index::Look;
use crate::store::sqlite::layout::meta::Class;
use crate::store::sqlite::layout::place::{Place, class_of};
use crate::store::sqlite::layout::rows;
use crate::store::sqlite::layout::schema;
use crate::store::sqlite::writer::batch::{Batch, Pending};
use crate::store::sqlite::writer::member_error::{Trouble, classify, demand_fit};

impl Batch<'_> {
    /// A new row at the new end; the one at `old` is gone.
    pub(crate) fn take(
        &mut self,
        id: OperationId,
        old: &Look,
        record: &Record,
    ) -> Result<(), Trouble> {
        self.bury(id, old)?;
        self.append(id, record)
    }

    pub(crate) fn append(&mut self, id: OperationId, record: &Record) -> Result<(), Trouble> {
        self.begin()?;
        let class = self.class(record.ttl_ms)?;
        let route = self.route(&record.route)?;
        let place = Place { class: class.class, row: class.next };
        rows::append(self.db, place, id, record, (route, class.next_response)).map_err(classify)?;
        self.counted(place.class, |class| class.next += 1);
        self.put(id, place, record.clone(), true);
        Ok(())
    }

    /// In place: only columns that keep their size.
    pub(crate) fn update(
        &mut self,
        id: OperationId,
        old: &Look,
        record: Record,
    ) -> Result<(), Trouble> {
        demand_fit(&record)?;
        let place = old.place.expect("a record that is rewritten has a place");
        self.begin()?;
        let responded = old.record.as_ref().is_some_and(is_completed);
        if responded {
            rows::forget_response(self.db, place).map_err(classify)?;
        }
        match &record.state {
            State::Completed { response, .. } => {
                let row = self.meta.class(place.class).map_or(1, |class| class.next_response);
                rows::settle(self.db, place, id, &record, (response, row)).map_err(classify)?;
                self.counted(place.class, |class| class.next_response += 1);
            }
            _ => rows::update(self.db, place, id, &record).map_err(classify)?,
        }
        self.put(id, place, record, true);
        Ok(())
    }

    pub(crate) fn delete(&mut self, id: OperationId, old: &Look) -> Result<(), Trouble> {
        self.bury(id, old)?;
        self.pending.insert(id, Pending { look: Look::default(), is_news: true });
        Ok(())
    }

    /// Its row stays in line, gone.
    fn bury(&mut self, id: OperationId, old: &Look) -> Result<(), Trouble> {
        let place = old.place.expect("a record that is deleted has a place");
        self.begin()?;
        let responded = old.record.as_ref().is_some_and(is_completed);
        rows::bury(self.db, place, id, responded).map_err(classify)
    }

    /// Moves a record to the new end of its class, as it is; its old row is the caller's to remove.
    pub(crate) fn carry(
        &mut self,
        id: OperationId,
        class: u8,
        record: Option<&Record>,
    ) -> Result<(), Trouble> {
        let Some(Class { next, next_response, .. }) = self.meta.class(class).copied() else {
            return Ok(());
        };
        let place = Place { class, row: next };
        if let Some(record) = record {
            let route = self.route(&record.route)?;
            rows::append(self.db, place, id, record, (route, next_response)).map_err(classify)?;
        }
        self.counted(class, |class| class.next += 1);
        let look = Look { place: Some(place), record: record.cloned() };
        self.pending.insert(id, Pending { look, is_news: false });
        Ok(())
    }

    /// Forgets the id in memory; its row is the caller's to remove.
    pub(crate) fn forget(&mut self, id: OperationId) {
        self.pending.insert(id, Pending { look: Look::default(), is_news: false });
    }

    pub(crate) fn put(&mut self, id: OperationId, place: Place, record: Record, is_news: bool) {
        let look = Look { place: Some(place), record: Some(record) };
        self.pending.insert(id, Pending { look, is_news });
    }

    /// The class of a time to live; its tables are made when it is first met.
    fn class(&mut self, ttl_ms: i64) -> Result<Class, Trouble> {
        let class = class_of(ttl_ms);
        if let Some(found) = self.meta.class(class) {
            return Ok(*found);
        }
        schema::create_class(self.db, class).map_err(Trouble::Whole)?;
        self.meta.classes.push(Class::empty(class));
        self.meta_changed = true;
        Ok(Class::empty(class))
    }

    fn counted(&mut self, class: u8, count: impl FnOnce(&mut Class)) {
        if let Some(class) = self.meta.class_mut(class) {
            count(class);
        }
    }

    /// The row of a route's text; it is written when it is first met.
    fn route(&mut self, route: &Arc<str>) -> Result<i64, Trouble> {
        if let Some(row) = self.interned.get(route) {
            return Ok(row);
        }
        let row = self.interned.push(route.clone());
        let sql = "INSERT INTO route (row, route) VALUES (?1, ?2)";
        let written = self.db.execute(sql, rusqlite::params![row, route]);
        written.map_err(classify).map(|_| row)
    }
}

fn is_completed(record: &Record) -> bool {
    record.state.kind() == StateKind::Completed
}
