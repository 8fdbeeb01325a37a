//! The one table of the protocol: state × event → state.
//!
//! Everything else follows from it: the states that an owner's guard names, the page
//! `docs/protocol.md`, and the constraints of the SQL schemas.
//!
//! ```
//! use onlyonce::engine::table::{RecordEvent, Phase, To, step};
//!
//! assert_eq!(step(Phase::Running, RecordEvent::Settle), Some(To::Completed));
//! assert_eq!(step(Phase::Unknown, RecordEvent::Claim), None, "an unknown outcome is never run again by itself");
//! ```

use crate::clock::StoreTime;
use crate::record::{Record, State, StateKind, StateSet};

/// Where an event leads from a phase; `None` where it may not happen.
pub const fn step(phase: Phase, event: RecordEvent) -> Option<To> {
    match (phase, event) {
        // A client's request makes the record, or takes one that is free.
        (Phase::Absent | Phase::Released | Phase::Expired, RecordEvent::Claim) => Some(To::Running),
        // The owner. It holds the true answer, so it may also settle what was given up on.
        (Phase::Running | Phase::Unknown | Phase::Released, RecordEvent::Settle) => {
            Some(To::Completed)
        }
        (Phase::Running | Phase::Unknown, RecordEvent::Release) => Some(To::Back),
        (Phase::Running, RecordEvent::MarkUnknown) => Some(To::Unknown),
        (Phase::Running, RecordEvent::Renew) => Some(To::Running),
        // The reaper: only running records lapse, and only into unknown.
        (Phase::Running, RecordEvent::Reap) => Some(To::Unknown),
        // Whoever resolves an unknown outcome.
        (Phase::Unknown, RecordEvent::Redrive) => Some(To::Running),
        (Phase::Unknown, RecordEvent::SettleFor) => Some(To::Completed),
        (Phase::Unknown, RecordEvent::ReleaseFor) => Some(To::Released),
        // An operator lets a key run again.
        (Phase::Completed, RecordEvent::Forget) => Some(To::Absent),
        // An operator has an answer removed; the outcome stays.
        (Phase::Completed, RecordEvent::Erase) => Some(To::Completed),
        // The sweep deletes what has expired, and nothing else.
        (Phase::Expired, RecordEvent::Sweep) => Some(To::Absent),
        _ => None,
    }
}

/// Where an operation stands at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No record.
    Absent,
    /// See [`State::Running`].
    Running,
    /// See [`State::Unknown`].
    Unknown,
    /// See [`State::Released`].
    Released,
    /// See [`State::Completed`].
    Completed,
    /// Completed or released, and its time to live is over. Never stored: derived at each read.
    Expired,
}

impl Phase {
    /// All of them, in the order of a life.
    pub const ALL: [Self; 6] = [
        Self::Absent,
        Self::Running,
        Self::Unknown,
        Self::Released,
        Self::Completed,
        Self::Expired,
    ];

    /// Where `record` stands at `now`.
    pub fn of(record: Option<&Record>, now: StoreTime) -> Self {
        let Some(record) = record else {
            return Self::Absent;
        };
        match record.state {
            _ if record.is_expired(now) => Self::Expired,
            State::Running { .. } => Self::Running,
            State::Unknown { .. } => Self::Unknown,
            State::Released { .. } => Self::Released,
            State::Completed { .. } => Self::Completed,
        }
    }

    /// The phase of an unexpired record in this state.
    const fn of_kind(kind: StateKind) -> Self {
        match kind {
            StateKind::Running => Self::Running,
            StateKind::Unknown => Self::Unknown,
            StateKind::Released => Self::Released,
            StateKind::Completed => Self::Completed,
        }
    }
}

/// What may happen to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEvent {
    /// A request claims it.
    Claim,
    /// Its owner writes the final outcome.
    Settle,
    /// Its owner, who knows that nothing was executed, gives it back.
    Release,
    /// Its owner sent, and has no whole answer.
    MarkUnknown,
    /// Its owner is alive.
    Renew,
    /// Its owner has been silent for a whole lease.
    Reap,
    /// A retry sends it again, to an upstream that dedups on the key.
    Redrive,
    /// Reconcile, the policy or an operator writes the final outcome.
    SettleFor,
    /// Reconcile, the policy or an operator vouches that it was not executed.
    ReleaseFor,
    /// An operator deletes the record: the next request with its key runs again.
    Forget,
    /// An operator has its answer removed, and the text of its key: the outcome stays.
    Erase,
    /// Its time to live is over, and the space is wanted back.
    Sweep,
}

impl RecordEvent {
    /// All of them: the owner's first, then everyone else's.
    pub const ALL: [Self; 12] = [
        Self::Claim,
        Self::Settle,
        Self::Release,
        Self::MarkUnknown,
        Self::Renew,
        Self::Reap,
        Self::Redrive,
        Self::SettleFor,
        Self::ReleaseFor,
        Self::Forget,
        Self::Erase,
        Self::Sweep,
    ];

    /// The stored states in which it may happen: what a guard must name.
    pub const fn states(self) -> StateSet {
        let mut kinds = [StateKind::Running; StateKind::ALL.len()];
        let (mut count, mut index) = (0, 0);
        while index < StateKind::ALL.len() {
            if step(Phase::of_kind(StateKind::ALL[index]), self).is_some() {
                kinds[count] = StateKind::ALL[index];
                count += 1;
            }
            index += 1;
        }
        StateSet::of(kinds.split_at(count).0)
    }
}

/// Where an event leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The record is deleted.
    Absent,
    /// See [`State::Running`].
    Running,
    /// See [`State::Unknown`].
    Unknown,
    /// See [`State::Released`].
    Released,
    /// See [`State::Completed`].
    Completed,
    /// Attempt 1 to absent; a later one to what it was taken from.
    Back,
}

#[cfg(test)]
mod tests;
