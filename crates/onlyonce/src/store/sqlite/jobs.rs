//! The jobs that callers queue for the writer and for the reader, each with the channel for its answer.

use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::clock::StoreTime;
use crate::record::Token;
use crate::scope::OperationId;
use crate::store::audit::{Appended, Note};
use crate::store::{
    Beat, Draft, Fault, Guard, Lease, Next, Page, Scan, Seen, StoreError, Swap, Swept,
};

pub(super) type Reply<T> = oneshot::Sender<Result<T, Fault>>;

/// A job for the writer.
pub(super) enum WriteJob {
    Claim(Box<ClaimJob>, Reply<Seen>),
    Swap(Box<SwapJob>, Reply<Swap>),
    Renew(Vec<(OperationId, Token)>, Lease, Reply<Vec<Beat>>),
    CheckValue(Box<CheckValueJob>, Reply<Option<String>>),
    MarkMoved(String, Reply<()>),
    Append(Arc<Appended>, Reply<()>),
    /// Deletes entries of the audit trail before this time, at most so many.
    Prune(StoreTime, usize, Reply<bool>),
    /// How many records to delete at most, and up to which expiry time.
    Sweep(usize, StoreTime, Reply<Swept>),
}

/// A draft, and what the audit trail is told of it.
pub(super) struct ClaimJob {
    pub(super) draft: Draft,
    pub(super) note: Option<Arc<Note>>,
}

pub(super) struct SwapJob {
    pub(super) id: OperationId,
    pub(super) guard: Guard,
    pub(super) to: Next,
    pub(super) note: Option<Arc<Note>>,
}

pub(super) struct CheckValueJob {
    pub(super) name: String,
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
}

impl CheckValueJob {
    pub(super) fn new(name: &str, from: Option<&str>, to: Option<&str>) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self { name: name.to_owned(), from: owned(from), to: owned(to) }
    }
}

/// The answer to a job, sent once the batch of the job is committed. A sweep spans batches and answers for itself.
#[expect(
    clippy::large_enum_variant,
    reason = "most answers are `Seen`, and boxing it would allocate for each of them"
)]
pub(super) enum Answer {
    Seen(Seen),
    Swap(Swap),
    Beats(Vec<Beat>),
    CheckValue(Option<String>),
    Pruned(bool),
    Done,
}

impl WriteJob {
    /// Sends the answer. A caller that dropped its future is not told: by contract its call may have happened.
    pub(super) fn answer(self, answer: Result<Answer, Fault>) {
        match (self, answer) {
            (Self::Claim(_, reply), Ok(Answer::Seen(seen))) => drop(reply.send(Ok(seen))),
            (Self::Swap(_, reply), Ok(Answer::Swap(swap))) => drop(reply.send(Ok(swap))),
            (Self::Renew(_, _, reply), Ok(Answer::Beats(beats))) => drop(reply.send(Ok(beats))),
            (Self::CheckValue(_, reply), Ok(Answer::CheckValue(kept))) => {
                drop(reply.send(Ok(kept)));
            }
            (Self::MarkMoved(_, reply) | Self::Append(_, reply), Ok(Answer::Done)) => {
                drop(reply.send(Ok(())));
            }
            (Self::Prune(_, _, reply), Ok(Answer::Pruned(more))) => drop(reply.send(Ok(more))),
            (job, Err(fault)) => job.fail(fault),
            (job, Ok(_)) => job.fail(Fault::Unsure(StoreError::Closed)),
        }
    }

    pub(super) fn fail(self, fault: Fault) {
        match self {
            Self::Claim(_, reply) => drop(reply.send(Err(fault))),
            Self::Swap(_, reply) => drop(reply.send(Err(fault))),
            Self::Renew(_, _, reply) => drop(reply.send(Err(fault))),
            Self::CheckValue(_, reply) => drop(reply.send(Err(fault))),
            Self::MarkMoved(_, reply) | Self::Append(_, reply) => drop(reply.send(Err(fault))),
            Self::Prune(_, _, reply) => drop(reply.send(Err(fault))),
            Self::Sweep(_, _, reply) => drop(reply.send(Err(fault))),
        }
    }
}

/// A job for the reader.
pub(super) enum ReadJob {
    One(OperationId, Reply<Seen>),
    Page(Scan, Reply<Page>),
    /// Reads the audit trail, and answers by itself.
    Trail(ReadTrail),
}

pub(super) type ReadTrail = Box<dyn FnOnce(Result<&Connection, Fault>) + Send>;

impl ReadJob {
    pub(super) fn fail(self, fault: Fault) {
        match self {
            Self::One(_, reply) => drop(reply.send(Err(fault))),
            Self::Page(_, reply) => drop(reply.send(Err(fault))),
            Self::Trail(read) => read(Err(fault)),
        }
    }
}
