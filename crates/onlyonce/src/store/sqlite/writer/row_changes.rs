//! The row changes of a batch: append, update in place, mark gone, move to the end of the table.

use std::sync::Arc;

use crate::record::{Record, State, StateKind};
use crate::scope::OperationId;
use crate::store::sqlite::index::Lookup;
use crate::store::sqlite::layout::meta::ClassRows;
use crate::store::sqlite::layout::place::{Place, class_of};
use crate::store::sqlite::layout::rows;
use crate::store::sqlite::layout::schema;
use crate::store::sqlite::writer::batch::{Batch, Pending};
use crate::store::sqlite::writer::job_error::{JobError, classify};

impl Batch<'_> {
    /// Replaces the record: the old row is marked gone and `record` is appended.
    pub(crate) fn take(
        &mut self,
        id: OperationId,
        old: &Lookup,
        record: &Record,
    ) -> Result<(), JobError> {
        self.mark_gone(id, old)?;
        self.append(id, record)
    }

    pub(crate) fn append(&mut self, id: OperationId, record: &Record) -> Result<(), JobError> {
        self.begin()?;
        let class = self.class(record.ttl_ms)?;
        let route = self.route(&record.route)?;
        let place = Place { class: class.class, row: class.next };
        rows::append(self.db, place, id, record, (route, class.next_response)).map_err(classify)?;
        self.edit_class(place.class, |class| class.next += 1);
        self.put(id, place, record.clone(), true);
        Ok(())
    }

    /// Writes `record` to the row it has. Only columns that keep their size change, so the row does not grow.
    pub(crate) fn update(
        &mut self,
        id: OperationId,
        old: &Lookup,
        record: Record,
    ) -> Result<(), JobError> {
        let place = old.place.expect("a record that is rewritten has a place");
        self.begin()?;
        let responded = old.record.as_ref().is_some_and(is_completed);
        if responded {
            rows::delete_response(self.db, place).map_err(classify)?;
        }
        match &record.state {
            State::Completed { response, .. } => {
                let row = self.meta.class(place.class).map_or(1, |class| class.next_response);
                rows::settle(self.db, place, id, &record, (response, row)).map_err(classify)?;
                self.edit_class(place.class, |class| class.next_response += 1);
            }
            _ => rows::update(self.db, place, id, &record).map_err(classify)?,
        }
        self.put(id, place, record, true);
        Ok(())
    }

    /// Writes another record to the row of one that is completed.
    pub(crate) fn replace(
        &mut self,
        id: OperationId,
        old: &Lookup,
        record: Record,
    ) -> Result<(), JobError> {
        let place = old.place.expect("a record that is replaced has a place");
        self.begin()?;
        let route = self.route(&record.route)?;
        let response = self.meta.class(place.class).map_or(1, |class| class.next_response);
        rows::replace(self.db, place, id, &record, (route, response)).map_err(classify)?;
        self.edit_class(place.class, |class| class.next_response += 1);
        self.put(id, place, record, true);
        Ok(())
    }

    pub(crate) fn delete(&mut self, id: OperationId, old: &Lookup) -> Result<(), JobError> {
        self.mark_gone(id, old)?;
        self.pending.insert(id, Pending { lookup: Lookup::default(), wakes_waiters: true });
        Ok(())
    }

    /// Marks the row gone. The row itself stays until the sweep reaches it, so that row numbers have no gap.
    fn mark_gone(&mut self, id: OperationId, old: &Lookup) -> Result<(), JobError> {
        let place = old.place.expect("a record that is deleted has a place");
        self.begin()?;
        let responded = old.record.as_ref().is_some_and(is_completed);
        rows::mark_gone(self.db, place, id, responded).map_err(classify)
    }

    /// Appends a copy of the record to its class and points the index at it; the caller deletes the old row. Without
    /// `record` the caller has copied the row, which cannot be decoded.
    pub(crate) fn move_to_end(
        &mut self,
        id: OperationId,
        class: u8,
        record: Option<&Record>,
    ) -> Result<(), JobError> {
        let Some(ClassRows { next, next_response, .. }) = self.meta.class(class).copied() else {
            return Ok(());
        };
        let place = Place { class, row: next };
        if let Some(record) = record {
            let route = self.route(&record.route)?;
            rows::append(self.db, place, id, record, (route, next_response)).map_err(classify)?;
        }
        self.edit_class(class, |class| class.next += 1);
        let lookup = Lookup { place: Some(place), record: record.cloned() };
        self.pending.insert(id, Pending { lookup, wakes_waiters: false });
        Ok(())
    }

    /// Removes the id from the index; the caller deletes its row.
    pub(crate) fn forget(&mut self, id: OperationId) {
        self.pending.insert(id, Pending { lookup: Lookup::default(), wakes_waiters: false });
    }

    pub(crate) fn put(
        &mut self,
        id: OperationId,
        place: Place,
        record: Record,
        wakes_waiters: bool,
    ) {
        let lookup = Lookup { place: Some(place), record: Some(record) };
        self.pending.insert(id, Pending { lookup, wakes_waiters });
    }

    /// The TTL class of `ttl_ms`. Its tables are created with its first record.
    fn class(&mut self, ttl_ms: i64) -> Result<ClassRows, JobError> {
        let class = class_of(ttl_ms);
        if let Some(found) = self.meta.class(class) {
            return Ok(*found);
        }
        schema::create_class(self.db, class).map_err(JobError::Transaction)?;
        self.meta.classes.push(ClassRows::empty(class));
        self.meta_changed = true;
        Ok(ClassRows::empty(class))
    }

    fn edit_class(&mut self, class: u8, count: impl FnOnce(&mut ClassRows)) {
        if let Some(class) = self.meta.class_mut(class) {
            count(class);
        }
    }

    /// The row number of a route's text, which is inserted with its first record.
    fn route(&mut self, route: &Arc<str>) -> Result<i64, JobError> {
        if let Some(row) = self.routes.row(route) {
            return Ok(row);
        }
        let row = self.routes.push(route.clone());
        let sql = "INSERT INTO route (row, route) VALUES (?1, ?2)";
        let written = self.db.execute(sql, rusqlite::params![row, route]);
        written.map_err(classify).map(|_| row)
    }
}

fn is_completed(record: &Record) -> bool {
    record.state.kind() == StateKind::Completed
}
