//! The audit trail is that of the store below: it has digests of keys, and no answers. Writes with a note are sealed as all
//! writes are.

use std::sync::Arc;
use std::time::Duration;

use super::Sealed;
use crate::clock::StoreTime;
use crate::scope::OperationId;
use crate::store::audit::{Appended, Audit, Calling, Note, Trail};
use crate::store::{Draft, Guard, Inspect, Next, Seen, Swap, Watch};

impl<S: Watch + Inspect> Sealed<S> {
    fn below(&self) -> &dyn Audit {
        self.store.audit().expect("a trail is offered only where the store below has one")
    }
}

impl<S: Watch + Inspect> Audit for Sealed<S> {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        let id = draft.id;
        let claiming = self.below().claim(self.seal.draft(draft), note);
        Box::pin(async move { Ok(self.seal.opened(id, claiming.await?)) })
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        let sealed = self.seal.next(id, &guard, &to);
        let swapping = self.below().swap(id, guard, sealed, note);
        Box::pin(async move { Ok(self.seal.swapped(id, &guard, &to, swapping.await?)) })
    }

    fn append(&self, batch: Arc<Appended>) -> Calling<'_, ()> {
        self.below().append(batch)
    }

    fn prune(&self, until: StoreTime, limit: usize) -> Calling<'_, bool> {
        self.below().prune(until, limit)
    }

    fn keep(&self) -> Duration {
        self.below().keep()
    }

    fn trail(&self) -> &dyn Trail {
        self.below().trail()
    }
}
