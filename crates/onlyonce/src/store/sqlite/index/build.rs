//! Builds the index at open, by one scan over the rows of every TTL class.
//!
//! The scan reads only the number, the id, the state and their checksum of a row. Row numbers must be consecutive: a row
//! that vanished with a damaged page would make its key absent, so a gap is refused as damage.

use std::path::Path;

use rusqlite::Connection;

use crate::store::sqlite::error::SqliteOpenError;
use crate::store::sqlite::index::Index;
use crate::store::sqlite::layout::meta::{ClassRows, Meta};
use crate::store::sqlite::layout::place::Place;
use crate::store::sqlite::layout::routes::Routes;
use crate::store::sqlite::layout::rows::{self, Found};
use crate::store::sqlite::layout::schema::{COMPLETED, GONE};
use crate::store::sqlite::layout::statements::Statements;

/// Reads every row once and builds the index. The row counts of `meta` are brought up to date: the meta row in the file
/// may be older than the rows.
pub(crate) fn index_of(
    db: &Connection,
    path: &Path,
    mut meta: Meta,
) -> Result<(Meta, Index), SqliteOpenError> {
    let routes = Routes::read(db).map_err(|error| SqliteOpenError::engine(path, error))?;
    let routes = routes.ok_or_else(|| SqliteOpenError::damaged(path, "a route is missing"))?;
    let mut index = Index::new(routes);
    for class in &mut meta.classes {
        let builder = ClassBuilder { db, path, class: *class, live: Vec::new() };
        *class = builder.run(&mut index)?;
    }
    Ok((meta, index))
}

/// Reads one class, from the newest row to the oldest.
struct ClassBuilder<'a> {
    db: &'a Connection,
    path: &'a Path,
    class: ClassRows,
    /// Rows that are not completed: their whole records are read afterwards.
    live: Vec<Place>,
}

impl ClassBuilder<'_> {
    fn run(mut self, index: &mut Index) -> Result<ClassRows, SqliteOpenError> {
        self.read_ids(index)?;
        for place in std::mem::take(&mut self.live) {
            self.read_live(index, place)?;
        }
        let sql = &Statements::of(self.class.class).last_response;
        let last: i64 =
            self.db.query_row(sql, [], |row| row.get(0)).map_err(|error| self.failed(error))?;
        self.class.next_response = last + 1;
        Ok(self.class)
    }

    fn read_ids(&mut self, index: &mut Index) -> Result<(), SqliteOpenError> {
        let sql = &Statements::of(self.class.class).ids;
        let mut statement = self.db.prepare(sql).map_err(|error| self.failed(error))?;
        let mut rows = statement.query([]).map_err(|error| self.failed(error))?;
        let mut expected = None;
        while let Some(row) = rows.next().map_err(|error| self.failed(error))? {
            let number = row.get(0).map_err(|error| self.failed(error))?;
            let newest = self.class.next.max(number + 1) - 1;
            let expected = expected.replace(number - 1).unwrap_or(newest);
            if number != expected || number < 1 {
                return Err(self.damaged(expected));
            }
            self.row(index, number, row)?;
        }
        self.ends(expected)
    }

    /// Checks that the oldest row is the one that the meta row names. `before` is one less than the oldest row.
    fn ends(&mut self, before: Option<i64>) -> Result<(), SqliteOpenError> {
        let ClassRows { first, next, .. } = self.class;
        let found = before.map_or(next, |before| before + 1);
        if found != first {
            return Err(self.damaged(first));
        }
        Ok(())
    }

    fn row(
        &mut self,
        index: &mut Index,
        number: i64,
        row: &rusqlite::Row<'_>,
    ) -> Result<(), SqliteOpenError> {
        let place = Place { class: self.class.class, row: number };
        let Some((id, state)) = rows::trusted_id(row, ID_COLUMN) else {
            return Err(self.damaged(number));
        };
        if number >= self.class.next {
            self.class.next = number + 1;
        }
        match state {
            GONE => return Ok(()),
            COMPLETED => {}
            _ => self.live.push(place),
        }
        if index.put_unread(id, place).is_some() {
            return Err(SqliteOpenError::damaged(
                self.path,
                format!("row {number} repeats an operation"),
            ));
        }
        Ok(())
    }

    /// Reads a live record into the index. One that cannot be decoded stays a place without a record: reading it is an
    /// error for its key.
    fn read_live(&self, index: &mut Index, place: Place) -> Result<(), SqliteOpenError> {
        let found =
            rows::read(self.db, place, &index.routes).map_err(|error| self.failed(error))?;
        if let Found::Record(id, record) = found {
            index.put(id, place, *record);
        }
        Ok(())
    }

    fn damaged(&self, row: i64) -> SqliteOpenError {
        let class = self.class.class;
        SqliteOpenError::damaged(
            self.path,
            format!("row {row} of record_{class} is missing or does not read"),
        )
    }

    fn failed(&self, error: rusqlite::Error) -> SqliteOpenError {
        SqliteOpenError::engine(self.path, error)
    }
}

/// Where the id stands in what `Statements::ids` selects.
const ID_COLUMN: usize = 1;
