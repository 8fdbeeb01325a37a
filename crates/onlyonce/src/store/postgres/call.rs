//! What callers ask of the connections, and how they are answered.

use tokio::sync::{mpsc, oneshot};

use crate::scope::OperationId;
use crate::store::{Draft, Fault, Guard, Next, Seen, StoreError, Swap};

pub(super) type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// Queues a call and waits for its answer. If its worker died with it, the answer is what `lost` makes of that.
pub(super) async fn ask<C, T>(
    queue: &mpsc::Sender<C>,
    lost: fn(StoreError) -> Fault,
    call: impl FnOnce(Reply<T>) -> C,
) -> Result<T, Fault> {
    let (reply, answer) = oneshot::channel();
    queue.try_send(call(reply)).map_err(|refused| match refused {
        mpsc::error::TrySendError::Full(_) => Fault::NotDone(StoreError::Busy),
        mpsc::error::TrySendError::Closed(_) => Fault::NotDone(StoreError::Closed),
    })?;
    answer.await.unwrap_or_else(|_| Err(lost(StoreError::Closed)))
}

/// For a writer.
pub(super) enum WriteCall {
    Claim(Box<Draft>, Reply<Seen>),
    Swap(Box<SwapCall>, Reply<Swap>),
}

pub(super) struct SwapCall {
    pub(super) id: OperationId,
    pub(super) guard: Guard,
    pub(super) to: Next,
}

impl WriteCall {
    pub(super) fn id(&self) -> OperationId {
        match self {
            Self::Claim(draft, _) => draft.id,
            Self::Swap(swap, _) => swap.id,
        }
    }

    /// What the call adds to a batch.
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
pub(super) struct LoadCall {
    pub(super) id: OperationId,
    pub(super) reply: Reply<Seen>,
}

/// The largest body that is kept: one commit must not hold up the others for long.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
