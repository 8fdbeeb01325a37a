//! The audit trail is the authority's. Writes with a note go the way of all writes, so that the copies stay true.

use std::sync::Arc;
use std::time::Duration;

use super::{Layered, SwapKind};
use crate::clock::StoreTime;
use crate::scope::OperationId;
use crate::store::audit::{Appended, Audit, Calling, Note, Trail};
use crate::store::{Draft, Guard, Inspect, Next, Seen, Swap, Watch};

impl<S: Watch + Inspect> Layered<S> {
    fn below(&self) -> &dyn Audit {
        self.inner.authority.audit().expect("a trail is offered only where the authority has one")
    }
}

impl<S: Watch + Inspect> Audit for Layered<S> {
    fn claim(&self, draft: Draft, note: Arc<Note>) -> Calling<'_, Seen> {
        Box::pin(self.claim_by(draft, |draft| self.below().claim(draft, note)))
    }

    fn swap(&self, id: OperationId, guard: Guard, to: Next, note: Arc<Note>) -> Calling<'_, Swap> {
        let kind = SwapKind::of(&guard, &to);
        Box::pin(self.swap_by(id, guard, kind, self.below().swap(id, guard, to, note)))
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
