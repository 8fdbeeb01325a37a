//! The journal: an operation is written down, durably, before its first byte is sent.
//!
//! 1. An entry has the key, the request and the number of attempts. It is on the disk before the first
//!    attempt begins (SQLite, `synchronous = FULL`), and is deleted when the operation is settled.
//!    Each further attempt is noted before it begins; one that cannot be noted is not sent
//!    ([`Stop::Journal`]).
//! 2. An entry counts as sent from the moment it is written. What a later process hears about it settles it
//!    only if it speaks for that first attempt too: see [`SendOutcome::Unknown`](super::SendOutcome::Unknown).
//! 3. After a crash [`Client::resume`](super::Client::resume) finishes the open operations, with the same keys.
//! 4. An outcome that stays unknown keeps its entry, until it is known or you [`forget`](Journal::forget) it.
//! 5. The file is for its owner only. It has URLs, headers (credentials too) and bodies, unless they are
//!    [sealed](Journal::sealed) or the bodies are [left out](Journal::without_bodies).
//!
//! Several processes may use one journal. Only one may resume at a time; a second is refused.

mod codec;
mod entry;
mod error;
mod file;
mod row;
mod seal;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use sha2::{Digest, Sha256};

use super::decide::Course;
use super::operation::Operation;
use super::outcome::Stop;
use crate::clock::{StoreTime, as_ms};
use crate::key::{Key, KeyRules};

pub(crate) use self::entry::Entry;
pub use self::error::JournalError;
use self::row::{COLUMNS, Row, find, insert};
use self::seal::Seal;

/// A file with the operations whose outcome is not known yet.
#[derive(Clone, Debug)]
pub struct Journal {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
    seal: Option<Arc<Seal>>,
    keeps_bodies: bool,
}

/// An operation whose outcome is not known yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Open {
    /// Its key.
    pub key: Key,
    /// When it was first sent, or about to be, since it was last proved not to have been executed.
    pub first_sent: StoreTime,
    /// How often it was sent, at most.
    pub attempts: u32,
    /// Whether it may have been executed. False only where every attempt was proved to have done nothing.
    pub is_in_doubt: bool,
    /// Whether only a person can settle it: the service will not tell, or may have forgotten the key.
    pub needs_reconciling: bool,
    /// Method and URL, without the query: `POST https://pay.example/charges`. `None` where the entry is
    /// sealed with a key that this journal was not given.
    pub target: Option<String>,
}

impl Open {
    /// When it was first sent, as RFC 3339 writes it, in UTC: `2026-11-16T01:02:03.004Z`.
    pub fn first_sent_utc(&self) -> String {
        self.first_sent.rfc3339()
    }
}

impl Journal {
    /// Opens the file, or creates it.
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

    /// Leaves the bodies out. An operation that is open after a crash can then not be sent again by
    /// [`Client::resume`](super::Client::resume), only looked up; send it yourself with its key.
    #[must_use]
    pub fn without_bodies(mut self) -> Self {
        self.keeps_bodies = false;
        self
    }

    /// The operations whose outcome is not known yet, the oldest first.
    pub async fn entries(&self) -> Result<Vec<Open>, JournalError> {
        let seal = self.seal.clone();
        self.with(move |connection| {
            let sql = format!("SELECT key, {COLUMNS} FROM entry ORDER BY first_sent_ms, key");
            let mut rows = connection.prepare(&sql)?;
            let rows =
                rows.query_map([], |row| Ok((row.get::<_, String>(0)?, Row::read(row, 1)?)))?;
            let mut entries = Vec::new();
            for row in rows {
                let (key, row) = row?;
                entries.push(row.open(key_of(&key)?, seal.as_deref()));
            }
            Ok(entries)
        })
        .await
    }

    /// Removes an entry by hand, because you know what became of the operation. True if it was there.
    pub async fn forget(&self, key: &Key) -> Result<bool, JournalError> {
        let key = key.as_str().to_owned();
        self.with(move |connection| {
            Ok(connection.execute("DELETE FROM entry WHERE key = ?1", [key])? > 0)
        })
        .await
    }

    /// Writes the operation down, durably. If it is there already, with the same request, it goes on from
    /// there, and is sent to where it was last sent.
    pub(super) async fn begin(
        &self,
        operation: Operation,
        course: Course,
    ) -> Result<Taken, JournalError> {
        let key = operation.key.clone().ok_or(JournalError::Damaged("an operation has no key"))?;
        let request = self.encoded(&key, &operation)?;
        // It counts as sent from here on: the first byte follows without another write.
        let row = Arc::new(Row {
            digest: self.digest(&operation),
            first_sent_ms: course.first_sent.as_ms(),
            attempts: 1,
            has_doubt: true,
            closed: None,
            has_body: self.keeps_bodies || operation.body.is_empty(),
            window_ms: course.window.map(as_ms),
            request,
        });
        let (text, new) = (key.as_str().to_owned(), row.clone());
        let found = self.with(move |connection| insert(connection, &text, &new)).await?;
        Ok(match found {
            // Its body is at hand, whether the journal has it or not.
            Some(found) => {
                let uri = self.operation(&key, &found)?.uri;
                let operation = operation.moved(uri);
                Taken { has_body: true, ..self.taken(key, operation, found, course) }
            }
            None => {
                let entry = Entry::new(self.clone(), key, operation.uri.clone(), row);
                Taken { entry, operation, course, closed: None, has_body: true }
            }
        })
    }

    /// The operation of an entry, and how far it came. `None` if it was settled meanwhile.
    pub(super) async fn load(
        &self,
        key: &Key,
        course: Course,
    ) -> Result<Option<Taken>, JournalError> {
        let text = key.as_str().to_owned();
        let Some(row) = self.with(move |connection| find(connection, &text)).await? else {
            return Ok(None);
        };
        let operation = self.operation(key, &row)?;
        Ok(Some(self.taken(key.clone(), operation, row, course)))
    }

    fn taken(&self, key: Key, operation: Operation, row: Row, course: Course) -> Taken {
        let row = row.restarted(&course);
        Taken {
            course: row.continued(course),
            closed: row.closed,
            has_body: row.has_body,
            entry: Entry::new(self.clone(), key, operation.uri.clone(), Arc::new(row)),
            operation,
        }
    }

    /// The request as bytes, sealed if the journal is.
    fn encoded(&self, key: &Key, operation: &Operation) -> Result<Vec<u8>, JournalError> {
        let request = codec::encode(operation, self.keeps_bodies);
        match &self.seal {
            Some(seal) => seal.close(key.as_str(), &request),
            None => Ok(request),
        }
    }

    fn operation(&self, key: &Key, row: &Row) -> Result<Operation, JournalError> {
        codec::decode(key.clone(), &row.unsealed(key, self.seal.as_deref())?)
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

    /// Tells whether two requests under one key are the same. It stays when the operation is redirected, so that
    /// the same request finds its entry again.
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

/// An operation that is in the journal, to be sent or to go on.
pub(super) struct Taken {
    pub(super) entry: Entry,
    pub(super) operation: Operation,
    /// Where it goes on. An entry of a process that died may have been sent.
    pub(super) course: Course,
    /// Why only a person can settle it, if that is so.
    pub(super) closed: Option<Stop>,
    pub(super) has_body: bool,
}

fn key_of(text: &str) -> Result<Key, JournalError> {
    let key = Key::from_text(text, &KeyRules::default());
    key.map_err(|_| JournalError::Damaged("a key in it is not valid"))
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, JournalError> + Send + 'static,
) -> Result<R, JournalError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(JournalError::Damaged("its thread ended")),
    }
}
