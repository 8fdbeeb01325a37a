//! The table of routes: each text is stored once, and records name it by its row number.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;

/// Every route that has a row; on the writer, those of the open batch included. Rows count from one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    texts: Vec<Arc<str>>,
    rows: HashMap<Arc<str>, i64>,
}

impl Routes {
    /// `None` if a row is missing.
    pub(crate) fn read(db: &Connection) -> rusqlite::Result<Option<Self>> {
        let mut statement = db.prepare("SELECT row, route FROM route ORDER BY row")?;
        let mut rows = statement.query([])?;
        let mut routes = Self::default();
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(0)? != routes.push(row.get(1)?) {
                return Ok(None);
            }
        }
        Ok(Some(routes))
    }

    pub(crate) fn text(&self, row: i64) -> Option<Arc<str>> {
        let at = usize::try_from(row).ok()?.checked_sub(1)?;
        self.texts.get(at).cloned()
    }

    pub(crate) fn row(&self, text: &str) -> Option<i64> {
        self.rows.get(text).copied()
    }

    /// Returns the row of the new route.
    pub(crate) fn push(&mut self, text: Arc<str>) -> i64 {
        self.texts.push(text.clone());
        let row = self.texts.len() as i64;
        self.rows.insert(text, row);
        row
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Forgets the routes past `length`, which were rolled back.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.texts.truncate(length);
        self.rows.retain(|_, row| *row <= length as i64);
    }
}
