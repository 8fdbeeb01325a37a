//! The words for what happens to operations, and for who makes it happen.

use std::sync::Arc;

/// What happened to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A request claimed it and is about to execute it.
    Claimed,
    /// It was executed, and its answer is stored.
    Executed,
    /// A retry was answered from its record.
    Replayed,
    /// Its key came with another request, which was refused.
    Mismatched,
    /// A retry was refused because the first request still runs.
    RefusedInFlight,
    /// A late owner's write was refused, because the record had been taken by another.
    Fenced,
    /// It was sent, and its outcome is not known.
    Unknown,
    /// The service said what became of it.
    Reconciled,
    /// A person or a rule of its route wrote its outcome.
    Settled,
    /// It was given back: not executed.
    Released,
    /// A person had its record deleted; its key runs again.
    Forgotten,
    /// A person had its answer and the text of its key removed; its outcome is kept.
    Erased,
    /// Its time to live was over, and its record was deleted.
    Expired,
    /// No event of an operation, but an entry of the audit trail: it says how many entries could not be kept.
    Dropped,
}

impl EventKind {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 14] = [
        Self::Claimed,
        Self::Executed,
        Self::Replayed,
        Self::Mismatched,
        Self::RefusedInFlight,
        Self::Fenced,
        Self::Unknown,
        Self::Reconciled,
        Self::Settled,
        Self::Released,
        Self::Forgotten,
        Self::Erased,
        Self::Expired,
        Self::Dropped,
    ];

    /// Its name in logs, in the audit trail and in the admin API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Mismatched => "mismatched",
            Self::RefusedInFlight => "refused_in_flight",
            Self::Fenced => "fenced",
            Self::Unknown => "unknown",
            Self::Reconciled => "reconciled",
            Self::Settled => "settled",
            Self::Released => "released",
            Self::Forgotten => "forgotten",
            Self::Erased => "erased",
            Self::Expired => "expired",
            Self::Dropped => "dropped",
        }
    }

    /// Whether it tells of a record that was only read: nothing in the store changed.
    pub const fn is_reading(self) -> bool {
        matches!(self, Self::Replayed | Self::Mismatched | Self::RefusedInFlight | Self::Fenced)
    }

    /// The kind with this name.
    ///
    /// ```
    /// use onlyonce::EventKind;
    ///
    /// assert_eq!(EventKind::named("replayed"), Some(EventKind::Replayed));
    /// assert_eq!(EventKind::named("paid"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Who changed a record, and why.
///
/// ```
/// use onlyonce::By;
///
/// let by = By::new("ann", "the bank's statement has the charge")?;
/// assert_eq!((by.who(), by.why()), ("ann", "the bank's statement has the charge"));
/// assert!(By::new("ann", "  ").is_err());
/// # Ok::<(), onlyonce::ByError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    who: Arc<str>,
    why: Arc<str>,
}

impl By {
    /// # Errors
    /// If one of them is blank or longer than [`CHARS_MAX`](Self::CHARS_MAX) characters.
    pub fn new(who: &str, why: &str) -> Result<Self, ByError> {
        let trimmed = |text: &str, what| match text.trim() {
            "" => Err(ByError::Blank { what }),
            text if text.chars().count() > Self::CHARS_MAX => Err(ByError::TooLong { what }),
            text => Ok(Arc::from(text)),
        };
        Ok(Self { who: trimmed(who, "who changes it")?, why: trimmed(why, "a reason")? })
    }

    /// The person or program.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// The reason.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The longest name, and the longest reason.
    pub const CHARS_MAX: usize = 1_000;
}

/// Why a change does not say enough about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ByError {
    /// Say it.
    #[error("{what} is needed")]
    Blank {
        /// What is missing.
        what: &'static str,
    },
    /// Say it in fewer words.
    #[error("{what} has more than {} characters", By::CHARS_MAX)]
    TooLong {
        /// What is too long.
        what: &'static str,
    },
}
