//! What callers ask of the connections, and how they are answered.

use tokio::sync::oneshot;

use super::check_value::Checking;
use super::lanes::Pin;
use crate::record::{StateKind, Token};
use crate::scope::OperationId;
use crate::store::{
    Beat, Draft, Fault, Guard, Lease, Next, Page, Scan, Seen, StoreError, Swap, Swept,
};

pub(super) type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// For a writer.
pub(super) struct Job {
    pub(super) task: Task,
    /// Its place with the writer.
    pub(super) pin: Pin,
}

pub(super) enum Task {
    Claim(Box<Draft>, Reply<Seen>),
    Swap(Box<Swapping>, Reply<Swap>),
}

pub(super) struct Swapping {
    pub(super) id: OperationId,
    pub(super) guard: Guard,
    pub(super) to: Next,
}

impl Task {
    pub(super) fn id(&self) -> OperationId {
        match self {
            Self::Claim(draft, _) => draft.id,
            Self::Swap(swap, _) => swap.id,
        }
    }

    /// What it adds to a batch.
    pub(super) fn body_bytes(&self) -> usize {
        match self {
            Self::Swap(swap, _) => body_bytes(&swap.to),
            Self::Claim(..) => 0,
        }
    }

    /// A caller who no longer listens has dropped the call; by contract it may have happened.
    pub(super) fn fail(self, fault: Fault) {
        match self {
            Self::Claim(_, reply) => drop(reply.send(Err(fault))),
            Self::Swap(_, reply) => drop(reply.send(Err(fault))),
        }
    }
}

/// Refuses, before anything is sent, a body that would hold up everyone.
pub(super) fn demand_fit(to: &Next) -> Result<(), Fault> {
    let bytes = body_bytes(to);
    if bytes <= BODY_BYTES_MAX {
        return Ok(());
    }
    let why = format!("a body of {bytes} bytes is over the limit of {BODY_BYTES_MAX}");
    Err(Fault::NotDone(StoreError::Refused(why.into())))
}

fn body_bytes(to: &Next) -> usize {
    match to {
        Next::Completed { response, .. } => response.body_bytes(),
        _ => 0,
    }
}

/// For the reader.
pub(super) struct Load {
    pub(super) id: OperationId,
    pub(super) reply: Reply<Seen>,
}

/// For the renewer.
pub(super) struct Renewal {
    pub(super) held: Vec<(OperationId, Token)>,
    pub(super) lease: Lease,
    pub(super) reply: Reply<Vec<Beat>>,
}

/// For the housekeeper.
pub(super) enum Chore {
    Scan(Scan, Reply<Page>),
    Sweep(usize, Reply<Swept>),
    HoldClock(bool, Reply<()>),
    CheckValue(Checking, Reply<Option<String>>),
    MarkMoved(String, Reply<()>),
}

/// The states of an owner's guard, as the statements take them; that of a completed record is left out.
pub(super) fn open_states(states: crate::record::StateSet) -> i32 {
    let open = StateKind::ALL.iter().zip(1..).take(3);
    open.filter(|(kind, _)| states.contains(**kind)).map(|(_, number)| 1 << number).sum()
}

/// The largest body that is kept: one commit must not hold up the others for long.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::StateSet;

    #[test]
    fn a_guard_names_its_states_by_their_numbers_and_never_the_completed_one() {
        assert_eq!(open_states(StateSet::of(&StateKind::ALL)), 0b1110);
        assert_eq!(open_states(StateSet::of(&[StateKind::Released])), 0b1000);
        assert_eq!(open_states(StateSet::of(&[StateKind::Completed])), 0);
    }
}
