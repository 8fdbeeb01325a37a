//! What the file says of itself, in one row: which store it is, and which rows there must be.
//!
//! Rows of a class have consecutive numbers: a deleted record leaves a row that is *gone*, and only
//! the sweep removes rows, from the old end. So a row that vanished with a damaged page is noticed.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::sqlite::layout::place::CLASS_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Random, made with the file: which store this is.
    pub(crate) generation: [u8; 16],
    pub(crate) moved_to: Option<String>,
    pub(crate) classes: Vec<ClassRows>,
}

/// The rows of one TTL class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassRows {
    pub(crate) class: u8,
    /// The oldest row.
    pub(crate) first: i64,
    /// The row that the next record gets: on disk, a lower bound of it.
    pub(crate) next: i64,
    /// The row that the next response gets. Not on disk.
    pub(crate) next_response: i64,
}

impl ClassRows {
    pub(crate) fn empty(class: u8) -> Self {
        Self { class, first: 1, next: 1, next_response: 1 }
    }
}

impl Meta {
    pub(crate) fn new(generation: [u8; 16]) -> Self {
        Self { generation, moved_to: None, classes: Vec::new() }
    }

    pub(crate) fn class(&self, class: u8) -> Option<&ClassRows> {
        self.classes.iter().find(|entry| entry.class == class)
    }

    pub(crate) fn class_mut(&mut self, class: u8) -> Option<&mut ClassRows> {
        self.classes.iter_mut().find(|entry| entry.class == class)
    }

    /// `None` if the row is missing or is not what was written.
    pub(crate) fn read(db: &Connection) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT generation, moved_to, classes, crc FROM meta WHERE one = 1";
        let row = db.query_row(sql, [], |row| {
            let meta = Raw { generation: row.get(0)?, moved_to: row.get(1)?, classes: row.get(2)? };
            Ok((meta, row.get::<_, Vec<u8>>(3)?))
        });
        let row = row.optional()?;
        Ok(row.and_then(|(raw, crc)| raw.checked(&crc)))
    }

    pub(crate) fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let raw = Raw::from(self);
        let sql = "INSERT OR REPLACE INTO meta (one, generation, moved_to, classes, crc)
                   VALUES (1, ?1, ?2, ?3, ?4)";
        let mut statement = db.prepare_cached(sql)?;
        statement.execute(params![raw.generation, raw.moved_to, raw.classes, raw.crc()])?;
        Ok(())
    }
}

struct Raw {
    generation: Vec<u8>,
    moved_to: Option<String>,
    classes: String,
}

impl From<&Meta> for Raw {
    fn from(meta: &Meta) -> Self {
        let classes = meta.classes.iter().map(write_class).collect::<Vec<_>>();
        Self {
            generation: meta.generation.to_vec(),
            moved_to: meta.moved_to.clone(),
            classes: classes.join("; "),
        }
    }
}

impl Raw {
    fn crc(&self) -> [u8; 4] {
        let moved_to = self.moved_to.as_deref();
        let mut crc = crc32c::crc32c(&self.generation);
        crc = crc32c::crc32c_append(crc, &[moved_to.is_some().into()]);
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
            generation: self.generation.try_into().ok()?,
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
            ..Meta::new([7; 16])
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema::META).unwrap();
        for meta in [Meta::new([1; 16]), sample()] {
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
