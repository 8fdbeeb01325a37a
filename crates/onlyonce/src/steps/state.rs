//! What becomes of an operation.

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepsState {
    /// An owner does it, or its owner is gone and the lease not over yet.
    Running,
    /// The last attempt failed; the next one is due later.
    Waiting,
    /// The stored points or values do not fit this version of the program. It is tried again after a pause.
    Stuck,
    /// A call that must not be repeated, or a step, may have been done, or the attempts are used up. A person decides.
    Unknown,
    /// It has its answer.
    Completed,
}

impl StepsState {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Waiting, Self::Stuck, Self::Unknown, Self::Completed];

    /// Its name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stuck => "stuck",
            Self::Unknown => "unknown",
            Self::Completed => "completed",
        }
    }

    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}
