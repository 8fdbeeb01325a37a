//! The clients, their transactions, and what is committed.

use super::CLIENTS;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Client {
    #[default]
    Idle,
    /// `begin` has found no row, and has not asked for the lock yet.
    Looked,
    /// In its transaction: `begin` said `mine`.
    Mine {
        is_worked: bool,
        is_completed: bool,
    },
    /// It has sent COMMIT.
    Committing,
    /// The answer to COMMIT was lost.
    Unsure,
    /// `complete` comes after COMMIT: only with a fault.
    Late,
    Told(Told),
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Told {
    Answer(u8),
    InProgress,
    Reused,
    /// `resolve` found nothing.
    NotDone,
}

/// A transaction, as the server has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tx {
    pub(super) is_open: bool,
    pub(super) has_effect: bool,
    pub(super) answer: Option<u8>,
    /// COMMIT has been sent: the server will do it, or has lost the connection before.
    pub(super) is_commit_sent: bool,
}

/// A row that was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) fingerprint: bool,
    pub(super) answer: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) clients: [Client; CLIENTS],
    pub(super) transactions: [Tx; CLIENTS],
    pub(super) row: Option<Row>,
    pub(super) effects: u8,
    pub(super) retries: u8,
    pub(super) wrong: Option<&'static str>,
}
