//! What is written down while an operation is on its way: nothing, or its entry in the journal.

/// The entry of one operation, if there is a journal.
#[derive(Debug, Default)]
pub(crate) struct Diary {
    #[cfg(feature = "client-journal")]
    pub(crate) entry: Option<super::journal::Entry>,
}

impl Diary {
    /// Notes that attempt `number` begins. What matters was written before the first: where this fails,
    /// only the count is wrong.
    #[cfg(feature = "client-journal")]
    pub(crate) async fn note_attempt(&self, number: u32) {
        if let Some(entry) = &self.entry {
            entry.note_attempt(number).await;
        }
    }

    #[cfg(not(feature = "client-journal"))]
    pub(crate) async fn note_attempt(&self, _: u32) {}
}
