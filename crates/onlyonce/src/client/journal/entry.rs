//! The entry of an operation that is on its way: what is written before each attempt, and after the last.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Uri;

use super::row::{Row, name_of, note};
use super::{Journal, JournalError};
use crate::client::operation::Operation;
use crate::client::outcome::{SendError, SendOutcome, Stop};
use crate::clock::as_ms;
use crate::code::Retry;
use crate::key::Key;

/// The entry of an operation that is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    journal: Journal,
    key: Key,
    /// The entry as it was at the start, to be written anew if it is gone when an attempt is noted.
    row: Arc<Row>,
    /// Where the operation was last sent, according to the entry.
    uri: Arc<Mutex<Uri>>,
    /// How many attempts the entry has if nobody else sends the operation at the same time.
    attempts: Arc<AtomicU32>,
}

impl Entry {
    /// `uri` is where the operation was last sent, according to the entry.
    pub(super) fn new(journal: Journal, key: Key, uri: Uri, row: Arc<Row>) -> Self {
        let attempts = Arc::new(row.attempts.into());
        Self { journal, key, row, uri: Arc::new(Mutex::new(uri)), attempts }
    }

    /// Notes attempt `number` before it is made. The first attempt is part of the entry from the start.
    ///
    /// After an error the attempt must not be sent: where an earlier run ended without a doubt, only this
    /// note says that the operation may have been executed.
    ///
    /// An operation that was redirected is written with its new URL: a resume that sent it to the old one
    /// would send another operation.
    pub(crate) async fn note_attempt(
        &self,
        number: u32,
        sending: &Operation,
        window: Option<Duration>,
    ) -> Result<(), JournalError> {
        if number <= 1 {
            return Ok(());
        }
        let attempts = self.attempts.load(Ordering::SeqCst).saturating_add(1);
        let moved = match *self.uri() == sending.uri {
            true => None,
            false => Some((self.journal.encoded(&self.key, sending)?, window.map(as_ms))),
        };
        let (key, row) = (self.key.as_str().to_owned(), self.row.clone());
        let noted =
            self.journal.with(move |connection| note(connection, &key, &row, attempts, moved));
        noted.await?;
        self.attempts.store(attempts, Ordering::SeqCst);
        self.uri().clone_from(&sending.uri);
        Ok(())
    }

    fn uri(&self) -> MutexGuard<'_, Uri> {
        self.uri.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how long the server keeps the key.
    pub(crate) async fn note_window(&self, window: Duration) -> Result<(), JournalError> {
        let (key, window_ms) = (self.key.as_str().to_owned(), as_ms(window));
        let sql = "UPDATE entry SET window_ms = ?2 WHERE key = ?1";
        let noted =
            self.journal.with(move |connection| Ok(connection.execute(sql, (key, window_ms))?));
        noted.await.map(drop)
    }

    /// After the last attempt, when it was tried to tell the end: the entry of an operation that was settled and not told
    /// stays as it is, and in doubt, so that a later run asks for the outcome again.
    pub(in crate::client) async fn note_told(
        &self,
        end: &Result<SendOutcome, SendError>,
        told: std::io::Result<()>,
    ) -> Result<(), JournalError> {
        match told {
            Err(error) if End::of(end).is_deleted() => Err(JournalError::NotTold(error)),
            Ok(()) | Err(_) => self.note_end(end).await,
        }
    }

    /// After the last attempt: deletes the entry of a settled operation, and keeps any other for later.
    ///
    /// That nothing was executed is known of the attempts of this process only: where another process sent
    /// the operation meanwhile, the entry stays, and stays in doubt.
    async fn note_end(&self, end: &Result<SendOutcome, SendError>) -> Result<(), JournalError> {
        let key = self.key.as_str().to_owned();
        let attempts = self.attempts.load(Ordering::SeqCst);
        let end = End::of(end);
        let noted = self.journal.with(move |connection| {
            Ok(match end {
                End::Closed(stop) => connection.execute(
                    "UPDATE entry SET has_doubt = 1, closed = ?2 WHERE key = ?1",
                    (key, name_of(stop)),
                ),
                End::InDoubt => {
                    connection.execute("UPDATE entry SET has_doubt = 1 WHERE key = ?1", [key])
                }
                End::NotExecuted => connection.execute(
                    "UPDATE entry SET has_doubt = 0 WHERE key = ?1 AND attempts = ?2",
                    (key, attempts),
                ),
                End::RefusedHere => connection
                    .execute("DELETE FROM entry WHERE key = ?1 AND attempts = ?2", (key, attempts)),
                End::Settled => connection.execute("DELETE FROM entry WHERE key = ?1", [key]),
            }?)
        });
        noted.await.map(drop)
    }
}

/// Whether only a person can settle an operation that ended in this way.
fn is_closing(stop: Stop) -> bool {
    matches!(stop, Stop::Closed | Stop::Window | Stop::KeyReused)
}

/// What an outcome means for the entry.
#[derive(Clone, Copy)]
enum End {
    Settled,
    /// No attempt of this process did anything, and none will.
    RefusedHere,
    /// No attempt of this process did anything; it is to be sent again.
    NotExecuted,
    InDoubt,
    /// The operation may have been executed, and asking again does not tell.
    Closed(Stop),
}

impl End {
    /// Whether the entry is deleted, so that nothing but what was told knows of the operation.
    fn is_deleted(self) -> bool {
        matches!(self, Self::Settled | Self::RefusedHere)
    }

    fn of(end: &Result<SendOutcome, SendError>) -> Self {
        match end {
            Ok(SendOutcome::Unknown { stop, .. }) if is_closing(*stop) => Self::Closed(*stop),
            Ok(SendOutcome::Unknown { .. }) => Self::InDoubt,
            // The key is still the operation's: whoever has fixed the credentials sends it again with this one.
            Ok(SendOutcome::Rejected { retry: Retry::SameKey, .. }) => Self::NotExecuted,
            Ok(SendOutcome::Rejected { answer, .. }) if !answer.is_replay() => Self::RefusedHere,
            Ok(_) => Self::Settled,
            Err(SendError::NotThrough { .. }) => Self::NotExecuted,
            Err(_) => Self::RefusedHere,
        }
    }
}
