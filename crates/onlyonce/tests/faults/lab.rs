//! One node: a handler behind a layer, on a store under a script and on a clock that can be moved.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::engine::Write;
use onlyonce::record::StateKind;
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::{Store, Swap};
use onlyonce::{Limits, Once, Policy};

use super::app::{App, Gate, Got, Handler, charge, send, send_apart};
use super::clock::TestClock;
use super::scripted::Scripted;

pub(crate) struct Lab {
    pub(crate) memory: MemoryStore,
    pub(crate) store: Scripted<MemoryStore>,
    pub(crate) clock: TestClock,
    pub(crate) handler: Handler,
    pub(crate) once: Once,
    pub(crate) app: App,
}

impl Lab {
    /// A node whose handler answers at once.
    pub(crate) fn new(policy: Policy) -> Self {
        Self::with(Handler::counting(), policy)
    }

    /// A node with this handler.
    pub(crate) fn with(handler: Handler, policy: Policy) -> Self {
        Self::bounded(handler, policy, limits())
    }

    /// A node with this handler and these bounds.
    pub(crate) fn bounded(handler: Handler, policy: Policy, limits: Limits) -> Self {
        Self::scripted(handler, policy, limits, |_| {})
    }

    /// A node whose store has its script before anybody calls it.
    pub(crate) fn scripted(
        handler: Handler,
        policy: Policy,
        limits: Limits,
        script: impl FnOnce(&Scripted<MemoryStore>),
    ) -> Self {
        let clock = TestClock::default();
        let memory = MemoryStore::with_clock(clock.clone());
        let store = Scripted::new(memory.clone());
        script(&store);
        Self::start(memory, store, clock, handler, policy, limits)
    }

    /// A second node on the same records and the same clock, with a script of its own.
    pub(crate) fn another(&self, handler: Handler, policy: Policy) -> Self {
        self.another_bounded(handler, policy, limits())
    }

    /// The same with bounds of its own.
    pub(crate) fn another_bounded(&self, handler: Handler, policy: Policy, limits: Limits) -> Self {
        let (memory, store) = (self.memory.clone(), self.store.another());
        Self::start(memory, store, self.clock.clone(), handler, policy, limits)
    }

    fn start(
        memory: MemoryStore,
        store: Scripted<MemoryStore>,
        clock: TestClock,
        handler: Handler,
        policy: Policy,
        limits: Limits,
    ) -> Self {
        let builder = Once::builder(store.clone()).with_clock(clock.clone()).with_limits(limits);
        let once = builder.build();
        let app = handler.guarded(&once, policy);
        Self { memory, store, clock, handler, once, app }
    }

    pub(crate) async fn send(&self, key: &str) -> Got {
        send(&self.app, charge(key)).await
    }

    /// Sends in a task of its own, and waits until the handler is at work on it.
    pub(crate) async fn begin(&self, key: &str) -> tokio::task::JoinHandle<Got> {
        let before = self.handler.executed();
        let first = send_apart(&self.app, key);
        super::until("the handler to be called", || async { self.handler.executed() > before })
            .await;
        first
    }

    pub(crate) fn executed(&self) -> usize {
        self.handler.executed()
    }

    /// Moves both clocks until `call` has ended: a bound that is counted on them is reached.
    pub(crate) async fn pass_until_answered<T>(
        &self,
        step: Duration,
        call: tokio::task::JoinHandle<T>,
    ) -> T {
        super::until("the call to end", || async {
            self.clock.pass(step);
            call.is_finished()
        })
        .await;
        call.await.expect("the caller lives")
    }

    /// Marks the only record unknown behind its owner's back, as a reaper does.
    pub(crate) async fn reap(&self) {
        super::until("the record to be marked unknown", || async {
            let (id, record) = super::records(&self.memory).await.pop().expect("a record");
            let write = Write::reap(record.revision());
            let swap = self.memory.swap(id, write.guard, write.next);
            matches!(swap.await, Ok(Swap::Done(_)))
        })
        .await;
        super::until_state(&self.memory, Some(StateKind::Unknown)).await;
    }
}

/// The default bounds, without the cache: every retry asks the store.
pub(crate) fn limits() -> Limits {
    Limits::default().with_cache_bytes_max(0)
}

/// Something to be done at a point of the script.
pub(crate) fn action(action: impl Fn() + Send + Sync + 'static) -> Arc<dyn Fn() + Send + Sync> {
    Arc::new(action)
}

/// A node whose handler waits at a gate.
pub(crate) fn gated(policy: Policy) -> (Lab, Gate) {
    let gate = Gate::default();
    (Lab::with(Handler::gated(&gate), policy), gate)
}
