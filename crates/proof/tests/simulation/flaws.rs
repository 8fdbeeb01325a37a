//! Stores that break their contract in one way. The checks must notice each of them, or they notice nothing.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The store keeps its contract.
    None,
    /// A swap is written whoever asks for it.
    IgnoresGuards,
    /// A swap is answered `Done`, and not written, one time in four.
    AnswersUndone,
    /// A sweep deletes running and unknown records too.
    SweepsAnyState,
    /// A claim is given to everyone who asks for it.
    GivesClaimsTwice,
}
