//! What callers ask of the workers, and how they are answered.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::value::Moment;
use crate::clock::StoreTime;
use crate::scope::OperationId;
use crate::store::audit::Note;
use crate::store::{Draft, Fault, Guard, Next, Seen, StoreError, Swap};

pub(super) type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// Queues a call and waits for its answer. If its worker died with it, the answer is what `lost` makes of that.
pub(super) async fn ask<T>(
    queue: &mpsc::Sender<Call>,
    lost: fn(StoreError) -> Fault,
    call: impl FnOnce(Reply<T>) -> Call,
) -> Result<T, Fault> {
    let (reply, answer) = oneshot::channel();
    queue.try_send(call(reply)).map_err(|refused| match refused {
        mpsc::error::TrySendError::Full(_) => Fault::NotDone(StoreError::Busy),
        mpsc::error::TrySendError::Closed(_) => Fault::NotDone(StoreError::Closed),
    })?;
    answer.await.unwrap_or_else(|_| Err(lost(StoreError::Closed)))
}

pub(super) enum Call {
    Load(OperationId, Reply<Seen>),
    Claim(Box<ClaimCall>, Reply<Seen>),
    Swap(Box<SwapCall>, Reply<Swap>),
}

pub(super) struct ClaimCall {
    pub(super) draft: Draft,
    /// What the audit trail is told, if one is kept.
    pub(super) note: Option<Arc<Note>>,
}

pub(super) struct SwapCall {
    pub(super) id: OperationId,
    pub(super) guard: Guard,
    pub(super) to: Next,
    pub(super) note: Option<Arc<Note>>,
}

impl Call {
    pub(super) fn id(&self) -> OperationId {
        match self {
            Self::Load(id, _) => *id,
            Self::Claim(claim, _) => claim.draft.id,
            Self::Swap(swap, _) => swap.id,
        }
    }

    /// What the audit trail is told if the call writes its record.
    pub(super) fn note(&self) -> Option<&Note> {
        match self {
            Self::Load(..) => None,
            Self::Claim(claim, _) => claim.note.as_deref(),
            Self::Swap(swap, _) => swap.note.as_deref(),
        }
    }

    /// What the call adds to a batch.
    pub(super) fn body_bytes(&self) -> usize {
        match self {
            Self::Swap(swap, _) => body_bytes(&swap.to),
            Self::Load(..) | Self::Claim(..) => 0,
        }
    }

    /// After this the server must not write it any more.
    pub(super) fn not_after(&self) -> Moment {
        Moment(match self {
            Self::Claim(claim, _) => claim.draft.not_after,
            Self::Swap(swap, _) => match &swap.to {
                Next::Running(attempt) => attempt.draft.not_after,
                _ => StoreTime::MAX,
            },
            Self::Load(..) => StoreTime::MAX,
        })
    }

    /// A caller who no longer listens has dropped the call; by contract it may have happened.
    pub(super) fn fail(self, fault: Fault) {
        match self {
            Self::Load(_, reply) | Self::Claim(_, reply) => drop(reply.send(Err(fault))),
            Self::Swap(_, reply) => drop(reply.send(Err(fault))),
        }
    }
}

/// Refuses, before anything is sent, a body that would hold up everyone.
pub(super) fn demand_fit(to: &Next) -> Result<(), Fault> {
    let bytes = body_bytes(to);
    if bytes > BODY_BYTES_MAX {
        let why = format!("a body of {bytes} bytes is over the limit of {BODY_BYTES_MAX}");
        return Err(Fault::NotDone(StoreError::Refused(why.into())));
    }
    Ok(())
}

fn body_bytes(to: &Next) -> usize {
    match to {
        Next::Completed { response, .. } => response.body_bytes(),
        _ => 0,
    }
}

/// The largest body that is kept: one commit must not hold up the others for long.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
