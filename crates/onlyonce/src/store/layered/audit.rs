//! The audit trail is the authority's. Writes with a note go the way of all writes, so that the copies stay true.

use std::sync::Arc;
use std::time::Duration;

use super::{Layered, SwapKind};
use crate::clock::StoreTime;
use crate::event::EventKind;
use crate::scope::OperationId;
use crate::store::audit::{
    Appended, Audit, Calling, ChainRow, EntryPage, EntryQuery, Head, Note, Trail, WriterId,
};
use crate::store::{Draft, Guard, Inspect, Next, Seen, Swap, Watch};

impl<S: Watch + Inspect> Layered<S> {
    fn trail(&self) -> &dyn Audit {
        self.inner.authority.audit().expect("a trail is offered only where the authority has one")
    }
}

impl<S: Watch + Inspect> Audit for Layered<S> {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        Box::pin(self.claim_by(draft, |draft| self.trail().claim(draft, note)))
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        let kind = SwapKind::of(&guard, &to);
        Box::pin(self.swap_by(id, guard, kind, self.trail().swap(id, guard, to, note)))
    }

    fn append(&self, batch: Arc<Appended>) -> Calling<'_, ()> {
        self.trail().append(batch)
    }

    fn prune(&self, until: StoreTime, limit: usize) -> Calling<'_, bool> {
        self.trail().prune(until, limit)
    }

    fn keep(&self) -> Duration {
        self.trail().keep()
    }
}

impl<S: Watch + Inspect> Trail for Layered<S> {
    fn entries(&self, query: EntryQuery) -> Calling<'_, EntryPage> {
        self.trail().entries(query)
    }

    fn count(&self, id: OperationId, kind: EventKind) -> Calling<'_, u64> {
        self.trail().count(id, kind)
    }

    fn heads(&self) -> Calling<'_, Vec<Head>> {
        self.trail().heads()
    }

    fn head(&self, writer: WriterId) -> Calling<'_, Option<Head>> {
        self.trail().head(writer)
    }

    fn writers(&self) -> Calling<'_, Vec<WriterId>> {
        self.trail().writers()
    }

    fn chain(&self, writer: WriterId, after: u64, limit: usize) -> Calling<'_, Vec<ChainRow>> {
        self.trail().chain(writer, after, limit)
    }
}
