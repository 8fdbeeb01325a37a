//! The entry of an operation that is on its way: what is written before each attempt, and after the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Journal, JournalError};
use crate::client::outcome::{Outcome, SendError, Stop};
use crate::key::Key;

/// The entry of an operation that is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    journal: Journal,
    key: Key,
    /// How many attempts the entry has if nobody else sends the operation at the same time.
    attempts: Arc<AtomicU32>,
}

impl Entry {
    pub(super) fn new(journal: Journal, key: Key, attempts: u32) -> Self {
        Self { journal, key, attempts: Arc::new(attempts.into()) }
    }

    /// Before attempt `number`. The first is part of the entry from the start.
    pub(crate) async fn note_attempt(&self, number: u32) {
        if number <= 1 {
            return;
        }
        self.attempts.fetch_add(1, Ordering::SeqCst);
        let key = self.key.as_str().to_owned();
        let noted = self.journal.with(move |connection| {
            let sql = "UPDATE entry SET attempts = attempts + 1, has_doubt = 1 WHERE key = ?1";
            Ok(connection.execute(sql, [key])?)
        });
        // What matters is in the entry already: an entry that was begun counts as sent.
        drop(noted.await);
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
