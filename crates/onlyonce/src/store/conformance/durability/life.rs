//! What the child does with each operation: a life that its number decides.

use std::sync::Arc;

use crate::record::{Kept, Record, Response, State, StateKind, Token};
use crate::scope::OperationId;
use crate::store::conformance::lab::swap;
use crate::store::conformance::writes::{self, Write};
use crate::store::{BoxError, Draft, Store, Swap};

/// An operation, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Claim,
    MarkUnknown,
    Settle,
    Release,
    Free,
    Take,
}

const LIVES: [&[Step]; 7] = [
    &[Step::Claim, Step::Settle],
    &[Step::Claim],
    &[Step::Claim, Step::Release],
    &[Step::Claim, Step::MarkUnknown],
    &[Step::Claim, Step::MarkUnknown, Step::Settle],
    &[Step::Claim, Step::MarkUnknown, Step::Free],
    &[Step::Claim, Step::MarkUnknown, Step::Free, Step::Take, Step::Settle],
];

impl Operation {
    pub(super) fn id(self) -> OperationId {
        let spread = u128::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        OperationId::from_bytes(spread.to_be_bytes())
    }

    pub(super) fn steps(self) -> usize {
        self.life().len()
    }

    fn life(self) -> &'static [Step] {
        LIVES[self.0 as usize % LIVES.len()]
    }

    /// Does one step, counted from 1.
    pub(super) async fn write<S: Store>(self, store: &S, step: usize) -> Result<(), BoxError> {
        if self.life()[step - 1] == Step::Claim {
            let seen = store.claim(self.draft(1)).await?;
            return answered(seen.mine, self, step);
        }
        let Some(read) = store.load(self.id()).await?.record else {
            return answered(false, self, step);
        };
        let write = self.next(step, &read);
        let swap = swap(store, &write).await?;
        answered(matches!(swap, Swap::Done(_)), self, step)
    }

    fn next(self, step: usize, read: &Record) -> Write {
        let owner = self.draft(read.attempt);
        match self.life()[step - 1] {
            Step::Claim | Step::Take => Write::take(&self.draft(read.attempt + 1), read),
            Step::MarkUnknown => Write::mark_unknown(&owner),
            Step::Settle => Write::settle_with(&owner, self.response()),
            Step::Release => Write::release(&owner),
            Step::Free => Write::free(owner.id, read),
        }
    }

    /// Whether this is what so many steps leave.
    pub(super) fn is_after(self, steps: usize, record: Option<&Record>) -> bool {
        let done = &self.life()[..steps];
        let expected = done.last().and_then(|step| step.leaves());
        let (Some(expected), Some(record)) = (expected, record) else {
            return expected.is_none() && record.is_none();
        };
        let attempt = if done.contains(&Step::Take) { 2 } else { 1 };
        let is_its_own = record.attempt == attempt
            && record.token == self.draft(attempt).token
            && record.key == self.draft(attempt).key;
        is_its_own && self.is_in(expected, &record.state)
    }

    fn is_in(self, expected: StateKind, state: &State) -> bool {
        match state {
            // No other process can own what this one finds running.
            State::Unknown { .. } if expected == StateKind::Running => true,
            State::Completed { response, .. } => {
                expected == StateKind::Completed && *response == self.response()
            }
            _ => state.kind() == expected,
        }
    }

    fn draft(self, attempt: u32) -> Draft {
        let mut token = [0x7e; 16];
        token[..4].copy_from_slice(&self.0.to_be_bytes());
        token[4..8].copy_from_slice(&attempt.to_be_bytes());
        Draft {
            id: self.id(),
            token: Token::from_bytes(token),
            key: crate::record::KeyText::new(format!("operation-{}", self.0)),
            ..writes::draft(1)
        }
    }

    /// Different for each, and of different lengths.
    fn response(self) -> Arc<Response> {
        let first = writes::response("");
        let body = format!("{:0>1$}", self.0, self.0 as usize % BODY_BYTES_MAX);
        Arc::new(Response {
            body: Kept::Bytes { body: body.into(), trailers: None },
            ..Response::clone(&first)
        })
    }
}

impl Step {
    /// The state after it; `None` for absent.
    const fn leaves(self) -> Option<StateKind> {
        match self {
            Self::Claim | Self::Take => Some(StateKind::Running),
            Self::MarkUnknown => Some(StateKind::Unknown),
            Self::Settle => Some(StateKind::Completed),
            Self::Release => None,
            Self::Free => Some(StateKind::Released),
        }
    }
}

fn answered(is_right: bool, operation: Operation, step: usize) -> Result<(), BoxError> {
    if is_right {
        return Ok(());
    }
    let number = operation.0;
    Err(format!("step {step} of operation {number} was refused").into())
}

const BODY_BYTES_MAX: usize = 5_000;
