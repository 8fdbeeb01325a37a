//! What can be wrong with a journal.

/// Why the journal cannot be used. Nothing was sent because of it, but for [`NotTold`](JournalError::NotTold).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Look at the path, its permissions and the disk, then try again.
    #[error("the journal cannot be opened: {0}")]
    File(#[source] std::io::Error),
    /// Look at the disk, then try again.
    #[error("the journal cannot be read or written: {0}")]
    Engine(#[from] rusqlite::Error),
    /// The file is not a journal, or another version wrote it. Choose another path, or finish it with the
    /// version that wrote it.
    #[error("the file is not a journal, or it was written by another version")]
    NotOurs,
    /// Another process is resuming this journal. Try again when it has ended.
    #[error("another process is resuming this journal")]
    InUse,
    /// The key is in the journal with another request. Repeat that request exactly, or give this one a key of
    /// its own.
    #[error("the key belongs to another request in the journal")]
    Reused {
        /// Whether that request may have been executed.
        is_in_doubt: bool,
    },
    /// The entry was sealed with another key, or not at all. Open the journal as it was written.
    #[error("an entry cannot be unsealed with this key")]
    Sealed,
    /// Another program changed the file, or the disk failed. Keep a copy of the file.
    #[error("the journal is damaged: {0}")]
    Damaged(&'static str),
    /// The outcome is known, and could not be printed or stored: its entry stays. Resume again once that is possible.
    #[error("the outcome could not be passed on: {0}")]
    NotTold(#[source] std::io::Error),
}
