//! The journal: an operation is written down, durably, before its first byte is sent.
//!
//! 1. An entry has the key, the request and the number of attempts. It is on the disk before the first
//!    attempt begins (SQLite, `synchronous = FULL`), and goes when the operation is settled.
//! 2. After a crash [`Client::resume`](super::Client::resume) finishes what is open, with the same keys.
//! 3. An outcome that stays unknown keeps its entry, until it is known or you [`forget`](Journal::forget) it.
//! 4. The file is for its owner only. It has URLs, headers (credentials too) and bodies, unless they are
//!    [sealed](Journal::sealed) or the bodies are [left out](Journal::without_bodies).
//!
//! Several processes may use one journal. Two that resume at the same time would only ask twice with the
//! same keys; the second is refused all the same.

mod codec;
mod error;
mod file;
mod seal;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::decide::Course;
use super::operation::Operation;
use super::outcome::{Doubt, Outcome, SendError, Stop};
use crate::clock::StoreTime;
use crate::key::{Key, KeyRules};

pub use self::error::JournalError;
use self::seal::Seal;

/// A file of operations that have not ended.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
    seal: Option<Arc<Seal>>,
    keeps_bodies: bool,
}

/// An operation that has not ended.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its key.
    pub key: Key,
    /// When it was first sent, or about to be.
    pub first_sent: StoreTime,
    /// How often it was sent, at most.
    pub attempts: u32,
    /// Whether only a person can settle it: the server will not tell, or may have forgotten the key.
    pub needs_reconciling: bool,
}

impl Journal {
    /// Opens the file, or makes it.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, JournalError> {
        let path = path.as_ref().to_owned();
        blocking(move || {
            let connection = Arc::new(Mutex::new(file::open(&path)?));
            Ok(Self { path, connection, seal: None, keeps_bodies: true })
        })
        .await
    }

    /// Encrypts requests with this key (XChaCha20-Poly1305): URL, headers and body. Only key, times and
    /// counts stay readable.
    #[must_use]
    pub fn sealed(mut self, key: [u8; 32]) -> Self {
        self.seal = Some(Arc::new(Seal::new(key)));
        self
    }

    /// Leaves the bodies out. What is open after a crash can then not be sent again by
    /// [`Client::resume`](super::Client::resume), only looked up; send it yourself with its key.
    #[must_use]
    pub fn without_bodies(mut self) -> Self {
        self.keeps_bodies = false;
        self
    }

    /// The operations that have not ended, the oldest first.
    pub async fn entries(&self) -> Result<Vec<Open>, JournalError> {
        self.with(|connection| {
            let mut rows = connection.prepare(
                "SELECT key, first_sent_ms, attempts, needs_reconciling FROM entry ORDER BY first_sent_ms, key",
            )?;
            let rows = rows.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })?;
            let mut entries = Vec::new();
            for row in rows {
                let (key, first_sent_ms, attempts, needs_reconciling) = row?;
                let first_sent = StoreTime::from_ms(first_sent_ms);
                entries.push(Open { key: key_of(&key)?, first_sent, attempts, needs_reconciling });
            }
            Ok(entries)
        })
        .await
    }

    /// Removes an entry by hand: you know what became of it. True if it was there.
    pub async fn forget(&self, key: &Key) -> Result<bool, JournalError> {
        let key = key.as_str().to_owned();
        self.with(move |connection| {
            Ok(connection.execute("DELETE FROM entry WHERE key = ?1", [key])? > 0)
        })
        .await
    }

    /// Writes the operation down, durably. If it is there already, with the same request, it goes on from
    /// there.
    pub(super) async fn begin(
        &self,
        operation: &Operation,
        course: Course,
    ) -> Result<(Entry, Course), JournalError> {
        let key = operation.key.clone().ok_or(JournalError::Damaged("an operation has no key"))?;
        let request = codec::encode(operation, self.keeps_bodies);
        let request = match &self.seal {
            Some(seal) => seal.close(key.as_str(), &request)?,
            None => request,
        };
        let row = Row {
            digest: self.digest(operation),
            first_sent_ms: course.first_sent.as_ms(),
            attempts: 0,
            has_doubt: false,
            needs_reconciling: false,
            has_body: self.keeps_bodies || operation.body.is_empty(),
            request,
        };
        let text = key.as_str().to_owned();
        let found = self.with(move |connection| insert(connection, &text, &row)).await?;
        let course = found.map_or(course, |row| row.continued(course));
        Ok((Entry { journal: self.clone(), key }, course))
    }

    /// The operation of an entry, and how far it came. `None` if it was settled meanwhile.
    pub(super) async fn load(&self, key: &Key) -> Result<Option<Loaded>, JournalError> {
        let text = key.as_str().to_owned();
        let Some(row) = self.with(move |connection| find(connection, &text)).await? else {
            return Ok(None);
        };
        let request = match &self.seal {
            Some(seal) => seal.open(key.as_str(), &row.request)?,
            None => row.request.clone(),
        };
        let operation = codec::decode(key.clone(), &request)?;
        let entry = Entry { journal: self.clone(), key: key.clone() };
        Ok(Some(Loaded { entry, operation, row }))
    }

    /// The right to resume, which one process has at a time.
    pub(super) async fn lock(&self) -> Result<File, JournalError> {
        let path = self.path.clone();
        blocking(move || file::lock(&path)).await
    }

    async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<R, JournalError> + Send + 'static,
    ) -> Result<R, JournalError> {
        let connection = self.connection.clone();
        blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            work(&mut connection)
        })
        .await
    }

    /// Tells whether two requests under one key are the same.
    fn digest(&self, operation: &Operation) -> Vec<u8> {
        let mut digest = Sha256::new();
        if let Some(seal) = &self.seal {
            digest.update(seal.salt());
        }
        let uri = operation.uri.to_string();
        for part in [operation.method.as_str().as_bytes(), uri.as_bytes(), &operation.body] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().to_vec()
    }
}

/// An entry that was read.
pub(super) struct Loaded {
    pub(super) entry: Entry,
    pub(super) operation: Operation,
    row: Row,
}

impl Loaded {
    /// From where it goes on. An entry of a process that died may have been sent.
    pub(super) fn continued(&self, course: Course) -> Course {
        self.row.continued(course)
    }

    pub(super) fn needs_reconciling(&self) -> bool {
        self.row.needs_reconciling
    }

    pub(super) fn has_body(&self) -> bool {
        self.row.has_body
    }
}

/// The entry of an operation that is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    journal: Journal,
    key: Key,
}

impl Entry {
    /// Before attempt `number`. The first is part of the entry from the start.
    pub(crate) async fn note_attempt(&self, number: u32) {
        if number <= 1 {
            return;
        }
        let key = self.key.as_str().to_owned();
        let noted = self.journal.with(move |connection| {
            let sql = "UPDATE entry SET attempts = MAX(attempts, ?2), has_doubt = 1 WHERE key = ?1";
            Ok(connection.execute(sql, (key, number))?)
        });
        // What matters is in the entry already: an entry that was begun counts as sent.
        drop(noted.await);
    }

    /// After the last attempt: settled it goes, else it stays for later.
    pub(super) async fn note_end(
        &self,
        end: &Result<Outcome, SendError>,
    ) -> Result<(), JournalError> {
        let key = self.key.as_str().to_owned();
        let sql = match end {
            Ok(Outcome::Unknown { stop: Stop::Closed | Stop::Window, .. }) => {
                "UPDATE entry SET needs_reconciling = 1 WHERE key = ?1"
            }
            Ok(Outcome::Unknown { .. }) => "UPDATE entry SET has_doubt = 1 WHERE key = ?1",
            Err(SendError::NotThrough { .. }) => "UPDATE entry SET has_doubt = 0 WHERE key = ?1",
            _ => "DELETE FROM entry WHERE key = ?1",
        };
        self.journal.with(move |connection| Ok(connection.execute(sql, [key])?)).await.map(drop)
    }
}

struct Row {
    digest: Vec<u8>,
    first_sent_ms: i64,
    attempts: u32,
    has_doubt: bool,
    needs_reconciling: bool,
    has_body: bool,
    request: Vec<u8>,
}

impl Row {
    fn continued(&self, course: Course) -> Course {
        Course {
            first_sent: StoreTime::from_ms(self.first_sent_ms).min(course.first_sent),
            sends: self.attempts,
            doubt: self.has_doubt.then_some(Doubt::NoAnswer),
            ..course
        }
    }
}

/// Inserts the row, or returns the one that is there with the same request. A row that is inserted counts
/// as one that may be sent: the first byte follows it without another write.
fn insert(connection: &mut Connection, key: &str, row: &Row) -> Result<Option<Row>, JournalError> {
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = find(&transaction, key)?;
    match found {
        Some(found) if found.digest == row.digest => return Ok(Some(found)),
        Some(_) => return Err(JournalError::Reused),
        None => {}
    }
    transaction.execute(
        "INSERT INTO entry (key, digest, first_sent_ms, attempts, has_doubt, needs_reconciling, has_body, request)
         VALUES (?1, ?2, ?3, 1, 1, 0, ?4, ?5)",
        (key, &row.digest, row.first_sent_ms, row.has_body, &row.request),
    )?;
    transaction.commit()?;
    Ok(None)
}

fn find(connection: &Connection, key: &str) -> Result<Option<Row>, JournalError> {
    let sql =
        "SELECT digest, first_sent_ms, attempts, has_doubt, needs_reconciling, has_body, request
               FROM entry WHERE key = ?1";
    let row = connection.query_row(sql, [key], |row| {
        Ok(Row {
            digest: row.get(0)?,
            first_sent_ms: row.get(1)?,
            attempts: row.get(2)?,
            has_doubt: row.get(3)?,
            needs_reconciling: row.get(4)?,
            has_body: row.get(5)?,
            request: row.get(6)?,
        })
    });
    Ok(row.optional()?)
}

fn key_of(text: &str) -> Result<Key, JournalError> {
    let key = Key::from_text(text, &KeyRules::default());
    key.map_err(|_| JournalError::Damaged("a key in it is none"))
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, JournalError> + Send + 'static,
) -> Result<R, JournalError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(JournalError::Damaged("its thread ended")),
    }
}
