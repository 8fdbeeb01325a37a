//! The audit trail is that of the store below: it has digests of keys, and no answers. Writes with a note are sealed as all
//! writes are.

use std::sync::Arc;
use std::time::Duration;

use super::Sealed;
use crate::clock::StoreTime;
use crate::event::EventKind;
use crate::scope::OperationId;
use crate::store::audit::{
    Appended, Audit, Calling, ChainRow, EntryPage, EntryQuery, Head, Note, Trail, WriterId,
};
use crate::store::{Draft, Guard, Inspect, Next, Seen, Swap, Watch};

impl<S: Watch + Inspect> Sealed<S> {
    fn trail(&self) -> &dyn Audit {
        self.store.audit().expect("a trail is offered only where the store below has one")
    }
}

impl<S: Watch + Inspect> Audit for Sealed<S> {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        let id = draft.id;
        let claiming = self.trail().claim(self.seal.draft(draft), note);
        Box::pin(async move { Ok(self.seal.opened(id, claiming.await?)) })
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        let sealed = self.seal.next(id, &guard, &to);
        let swapping = self.trail().swap(id, guard, sealed, note);
        Box::pin(async move { Ok(self.seal.swapped(id, &guard, &to, swapping.await?)) })
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

impl<S: Watch + Inspect> Trail for Sealed<S> {
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
