//! What is written down while an operation is on its way: nothing, or its entry in the journal.

use std::time::Duration;

use super::transport::Failure;
#[cfg(feature = "client-journal")]
use super::transport::Reach;

/// The entry of one operation, if there is a journal.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    #[cfg(feature = "client-journal")]
    pub(crate) entry: Option<super::journal::Entry>,
}

impl Diary {
    /// Notes that attempt `number` begins. Where this fails the attempt must not be sent.
    #[cfg(feature = "client-journal")]
    pub(crate) async fn note_attempt(&self, number: u32) -> Result<(), Failure> {
        let Some(entry) = &self.entry else { return Ok(()) };
        entry.note_attempt(number).await.map_err(|error| Failure::new(Reach::NotSent, error))
    }

    /// Notes how long the server keeps the key.
    #[cfg(feature = "client-journal")]
    pub(crate) async fn note_window(&self, window: Duration) {
        if let Some(entry) = &self.entry {
            // Without the note a later process has to ask the server, which is safe.
            drop(entry.note_window(window).await);
        }
    }

    #[cfg(not(feature = "client-journal"))]
    pub(crate) async fn note_window(&self, _: Duration) {}

    #[cfg(not(feature = "client-journal"))]
    pub(crate) async fn note_attempt(&self, _: u32) -> Result<(), Failure> {
        Ok(())
    }
}
