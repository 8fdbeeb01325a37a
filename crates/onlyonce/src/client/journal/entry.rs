//! The entry of an operation that is on its way: what is written before each attempt, and after the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::row::{Row, note};
use super::{Journal, JournalError};
use crate::client::outcome::{Outcome, SendError, Stop};
use crate::clock::as_ms;
use crate::key::Key;

/// The entry of an operation that is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    journal: Journal,
    key: Key,
    /// As it was at the start: written anew if it is gone when an attempt is to be noted.
    row: Arc<Row>,
    /// How many attempts the entry has if nobody else sends the operation at the same time.
    attempts: Arc<AtomicU32>,
}

impl Entry {
    pub(super) fn new(journal: Journal, key: Key, row: Arc<Row>) -> Self {
        let attempts = Arc::new(row.attempts.into());
        Self { journal, key, row, attempts }
    }

    /// Before attempt `number`. The first is part of the entry from the start.
    ///
    /// After an error the attempt must not be sent: where an earlier run ended without a doubt, only this
    /// note says that the operation may have been executed.
    pub(crate) async fn note_attempt(&self, number: u32) -> Result<(), JournalError> {
        if number <= 1 {
            return Ok(());
        }
        let attempts = self.attempts.load(Ordering::SeqCst).saturating_add(1);
        let (key, row) = (self.key.as_str().to_owned(), self.row.clone());
        self.journal.with(move |connection| note(connection, &key, &row, attempts)).await?;
        self.attempts.store(attempts, Ordering::SeqCst);
        Ok(())
    }

    /// How long the server keeps the key.
    pub(crate) async fn note_window(&self, window: Duration) -> Result<(), JournalError> {
        let (key, window_ms) = (self.key.as_str().to_owned(), as_ms(window));
        let sql = "UPDATE entry SET window_ms = ?2 WHERE key = ?1";
        let noted =
            self.journal.with(move |connection| Ok(connection.execute(sql, (key, window_ms))?));
        noted.await.map(drop)
    }

    /// After the last attempt: settled it goes, else it stays for later.
    ///
    /// That nothing was executed is known of the attempts of this process only: where another process sent
    /// the operation meanwhile, the entry stays, and stays in doubt.
    pub(in crate::client) async fn note_end(
        &self,
        end: &Result<Outcome, SendError>,
    ) -> Result<(), JournalError> {
        let key = self.key.as_str().to_owned();
        let attempts = self.attempts.load(Ordering::SeqCst);
        let sql = match end {
            Ok(Outcome::Unknown { stop: Stop::Closed | Stop::Window, .. }) => {
                "UPDATE entry SET has_doubt = 1, needs_reconciling = 1 WHERE key = ?1"
            }
            Ok(Outcome::Unknown { .. }) => "UPDATE entry SET has_doubt = 1 WHERE key = ?1",
            Ok(Outcome::Rejected { answer, .. }) if !answer.is_replay() => {
                "DELETE FROM entry WHERE key = ?1 AND attempts = ?2"
            }
            Ok(_) => "DELETE FROM entry WHERE key = ?1",
            Err(SendError::NotThrough { .. }) => {
                "UPDATE entry SET has_doubt = 0 WHERE key = ?1 AND attempts = ?2"
            }
            Err(_) => "DELETE FROM entry WHERE key = ?1 AND attempts = ?2",
        };
        let noted = self.journal.with(move |connection| {
            let mut statement = connection.prepare(sql)?;
            Ok(match statement.parameter_count() {
                1 => statement.execute([key])?,
                _ => statement.execute((key, attempts))?,
            })
        });
        noted.await.map(drop)
    }
}
