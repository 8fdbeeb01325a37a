//! What can be wrong with a journal.

/// Why the journal cannot be used. Nothing was sent because of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Look at the path, its permissions and the disk, then try again.
    #[error("the journal cannot be opened: {0}")]
    File(#[source] std::io::Error),
    /// Look at the disk, then try again.
    #[error("the journal cannot be read or written: {0}")]
    Engine(#[from] rusqlite::Error),
    /// The file is something else. Choose another path.
    #[error("the file is not a journal of this client, or one of a newer version")]
    NotOurs,
    /// Another process resumes this journal. It does the work; try again when it is done.
    #[error("another process resumes this journal")]
    InUse,
    /// The key is in the journal with another request. Give this one a key of its own.
    #[error("the key is in the journal with another request, which has not ended")]
    Reused,
    /// The entry was sealed with another key, or not at all. Open the journal as it was written.
    #[error("an entry cannot be unsealed with this key")]
    Sealed,
    /// The file has been changed by someone else, or the machine failed. Keep a copy of it.
    #[error("the journal is damaged: {0}")]
    Damaged(&'static str),
}
