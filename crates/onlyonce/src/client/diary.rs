//! The notes about an operation while it is sent: its entry in the journal, or nothing.

use std::time::Duration;

use super::operation::Operation;
#[cfg(feature = "client-journal")]
use super::transport::Reach;
use super::transport::TransportError;

/// The entry of one operation, if there is a journal.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    #[cfg(feature = "client-journal")]
    pub(crate) entry: Option<super::journal::Entry>,
}

impl Diary {
    /// Notes that attempt `number` begins, and where it is sent. Where this fails the attempt must not be sent.
    #[cfg(feature = "client-journal")]
    pub(crate) async fn note_attempt(
        &self,
        number: u32,
        sending: &Operation,
        window: Option<Duration>,
    ) -> Result<(), TransportError> {
        let Some(entry) = &self.entry else { return Ok(()) };
        let noted = entry.note_attempt(number, sending, window).await;
        noted.map_err(|error| TransportError::new(Reach::NotSent, error))
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
    pub(crate) async fn note_attempt(
        &self,
        _: u32,
        _: &Operation,
        _: Option<Duration>,
    ) -> Result<(), TransportError> {
        Ok(())
    }
}
