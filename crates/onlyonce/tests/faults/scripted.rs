//! A store that does what a script says, call by call.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};

use onlyonce::clock::StoreTime;
use onlyonce::record::Token;
use onlyonce::scope::OperationId;
use onlyonce::store::{
    Beat, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store, StoreError,
    StoreLimits, Swap, Swept, Watch,
};

/// What is asked of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Claim,
    Load,
    Settle,
    Release,
    MarkUnknown,
    Take,
    Renew,
    Scan,
    Sweep,
}

/// How it goes.
#[derive(Clone)]
pub(crate) enum Act {
    /// Well.
    Do,
    /// It is not done and never will be, because the store is not there.
    NotDone,
    /// It is not done and never will be, because the store has too much to do.
    Busy,
    /// It is not done and never will be, because the store was closed.
    Closed,
    /// The store will never take this content.
    Refuse,
    /// There is a record, and it does not read.
    Unreadable,
    /// It does not arrive, and nobody can tell.
    LoseCall,
    /// It is done, and nobody can tell.
    LoseReply,
    /// No answer ever comes, and it does not arrive.
    Hang,
    /// A bug in the store, before anything is sent.
    Panic,
    /// Well; before the answer leaves, this happens.
    DoThen(Arc<dyn Fn() + Send + Sync>),
    /// It is done, this happens, and nobody can tell.
    LoseReplyThen(Arc<dyn Fn() + Send + Sync>),
    /// Well, after a while.
    Slowly(std::time::Duration),
    /// Well, once this gate is open.
    Wait(super::app::Gate),
}

/// The store `S` under a script. A clone is the same store under the same script.
#[derive(Clone)]
pub(crate) struct Scripted<S> {
    pub(crate) inner: S,
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Script {
    next: HashMap<Call, VecDeque<Act>>,
    always: HashMap<Call, Act>,
    made: HashMap<Call, usize>,
    claims: Vec<Draft>,
    is_mute: bool,
}

impl<S> Scripted<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, script: Arc::default() }
    }

    /// The same records under a script of their own: another node's way to the store.
    pub(crate) fn another(&self) -> Self
    where
        S: Clone,
    {
        Self::new(self.inner.clone())
    }

    /// The next `times` calls go like this.
    pub(crate) fn next(&self, call: Call, times: usize, act: Act) {
        let mut script = self.script();
        let acts = script.next.entry(call).or_default();
        acts.extend(std::iter::repeat_n(act, times));
    }

    /// Every call goes like this, until further notice.
    pub(crate) fn always(&self, call: Call, act: Act) {
        self.script().always.insert(call, act);
    }

    /// How often it was called.
    pub(crate) fn made(&self, call: Call) -> usize {
        self.script().made.get(&call).copied().unwrap_or(0)
    }

    /// Every claim that was sent, arrived or not.
    pub(crate) fn claims(&self) -> Vec<Draft> {
        self.script().claims.clone()
    }

    /// From now on no wake-up arrives.
    pub(crate) fn mute(&self) {
        self.script().is_mute = true;
    }

    fn act(&self, call: Call) -> Act {
        let mut script = self.script();
        *script.made.entry(call).or_default() += 1;
        let next = script.next.get_mut(&call).and_then(VecDeque::pop_front);
        next.or_else(|| script.always.get(&call).cloned()).unwrap_or(Act::Do)
    }

    async fn run<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, Fault>> + Send,
    ) -> Result<T, Fault> {
        match self.act(call) {
            Act::Do => work.await,
            Act::NotDone => Err(Fault::NotDone(StoreError::Unavailable("nobody listens".into()))),
            Act::Busy => Err(Fault::NotDone(StoreError::Busy)),
            Act::Closed => Err(Fault::NotDone(StoreError::Closed)),
            Act::Refuse => Err(Fault::NotDone(StoreError::Refused("not this".into()))),
            Act::Unreadable => Err(Fault::NotDone(StoreError::Unreadable("damaged".into()))),
            Act::LoseCall => Err(lost()),
            Act::LoseReply => {
                let _ = work.await;
                Err(lost())
            }
            Act::Hang => std::future::pending().await,
            Act::Panic => panic!("a bug in the store"),
            Act::DoThen(then) => {
                let answer = work.await;
                then();
                answer
            }
            Act::LoseReplyThen(then) => {
                let _ = work.await;
                then();
                Err(lost())
            }
            Act::Slowly(delay) => {
                tokio::time::sleep(delay).await;
                work.await
            }
            Act::Wait(gate) => {
                gate.passed().await;
                work.await
            }
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no test panics with the script")
    }
}

fn lost() -> Fault {
    Fault::Unsure(StoreError::Unavailable("the line is dead".into()))
}

impl<S: Store> Store for Scripted<S> {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.script().claims.push(draft.clone());
        self.run(Call::Claim, self.inner.claim(draft)).await
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.run(Call::Load, self.inner.load(id)).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        let call = match to {
            Next::Completed { .. } | Next::Replaced(_) => Call::Settle,
            Next::Absent | Next::Released { .. } => Call::Release,
            Next::Unknown { .. } => Call::MarkUnknown,
            Next::Running(_) => Call::Take,
        };
        self.run(call, self.inner.swap(id, guard, to)).await
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        self.run(Call::Renew, self.inner.renew(held, lease)).await
    }
}

impl<S: Watch> Watch for Scripted<S> {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        let changed = (!self.script().is_mute).then(|| self.inner.changed(id));
        async move {
            match changed {
                Some(changed) => changed.await,
                None => std::future::pending().await,
            }
        }
    }
}

impl<S: Maintain> Maintain for Scripted<S> {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        self.run(Call::Scan, self.inner.scan(query)).await
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        self.run(Call::Sweep, self.inner.sweep(until, limit)).await
    }

    async fn check_value(
        &self,
        name: &str,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Option<String>, Fault> {
        self.inner.check_value(name, from, to).await
    }

    fn limits(&self) -> StoreLimits {
        self.inner.limits()
    }
}

impl<S: Maintain> Inspect for Scripted<S> {}
