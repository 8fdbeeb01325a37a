//! The meta row: which rows each TTL class must have, and whether the store was moved.
//!
//! Row numbers of a class are consecutive: the row of a deleted record stays, marked gone, and only the sweep deletes
//! rows, from the old end. So the scan at open notices a row that vanished with a damaged page.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::sqlite::layout::place::CLASS_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) moved_to: Option<String>,
    pub(crate) classes: Vec<ClassRows>,
}

/// The row numbers of one TTL class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassRows {
    pub(crate) class: u8,
    /// The oldest row.
    pub(crate) first: i64,
    /// The row that the next record gets. The meta row in the file may have an older, lower number.
    pub(crate) next: i64,
    /// The row that the next response gets. Not in the meta row.
    pub(crate) next_response: i64,
}

impl ClassRows {
    pub(crate) fn empty(class: u8) -> Self {
        Self { class, first: 1, next: 1, next_response: 1 }
    }
}

impl Meta {
    /// The meta row of a new file.
    pub(crate) fn new() -> Self {
        Self { moved_to: None, classes: Vec::new() }
    }

    pub(crate) fn class(&self, class: u8) -> Option<&ClassRows> {
        self.classes.iter().find(|entry| entry.class == class)
    }

    pub(crate) fn class_mut(&mut self, class: u8) -> Option<&mut ClassRows> {
        self.classes.iter_mut().find(|entry| entry.class == class)
    }

    /// `None` if the row is missing or its checksum is wrong.
    pub(crate) fn read(db: &Connection) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT moved_to, classes, crc FROM meta WHERE one = 1";
        let row = db.query_row(sql, [], |row| {
            let meta = Raw { moved_to: row.get(0)?, classes: row.get(1)? };
            Ok((meta, row.get::<_, Vec<u8>>(2)?))
        });
        let row = row.optional()?;
        Ok(row.and_then(|(raw, crc)| raw.checked(&crc)))
    }

    pub(crate) fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let raw = Raw::from(self);
        let sql = "INSERT OR REPLACE INTO meta (one, moved_to, classes, crc)
                   VALUES (1, ?1, ?2, ?3)";
        let mut statement = db.prepare_cached(sql)?;
        statement.execute(params![raw.moved_to, raw.classes, raw.crc()])?;
        Ok(())
    }
}

/// The meta row as its columns.
struct Raw {
    moved_to: Option<String>,
    classes: String,
}

impl From<&Meta> for Raw {
    fn from(meta: &Meta) -> Self {
        let classes = meta.classes.iter().map(write_class).collect::<Vec<_>>();
        Self { moved_to: meta.moved_to.clone(), classes: classes.join("; ") }
    }
}

impl Raw {
    fn crc(&self) -> [u8; 4] {
        let moved_to = self.moved_to.as_deref();
        let mut crc = crc32c::crc32c(&[moved_to.is_some().into()]);
        crc = crc32c::crc32c_append(crc, moved_to.unwrap_or_default().as_bytes());
        crc = crc32c::crc32c_append(crc, self.classes.as_bytes());
        crc.to_le_bytes()
    }

    fn checked(self, crc: &[u8]) -> Option<Meta> {
        if self.crc() != *crc {
            return None;
        }
        let classes = self.classes.split("; ").filter(|text| !text.is_empty());
        Some(Meta {
            moved_to: self.moved_to,
            classes: classes.map(read_class).collect::<Option<_>>()?,
        })
    }
}

fn write_class(class: &ClassRows) -> String {
    let ClassRows { class, first, next, .. } = class;
    format!("class {class}: rows {first} to before {next}")
}

fn read_class(text: &str) -> Option<ClassRows> {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let numbers: Vec<i64> = numbers.map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [class, first, next] = *numbers else {
        return None;
    };
    let class = u8::try_from(class).ok().filter(|class| *class <= CLASS_MAX)?;
    Some(ClassRows { class, first, next, next_response: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::layout::schema;

    fn sample() -> Meta {
        Meta {
            moved_to: Some("pg".to_owned()),
            classes: vec![
                ClassRows { first: 5, next: 9, ..ClassRows::empty(27) },
                ClassRows::empty(63),
            ],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema::META).unwrap();
        for meta in [Meta::new(), sample()] {
            meta.write(&db).unwrap();
            assert_eq!(Meta::read(&db).unwrap(), Some(meta));
        }
    }

    #[test]
    fn a_changed_row_does_not_read() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema::META).unwrap();
        sample().write(&db).unwrap();
        db.execute_batch("UPDATE meta SET moved_to = 'ph'").unwrap();
        assert_eq!(Meta::read(&db).unwrap(), None);
    }
}
