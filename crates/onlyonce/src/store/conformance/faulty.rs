//! A store that loses, doubles and delays calls, as networks do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::StoreTime;
use crate::record::Token;
use crate::scope::OperationId;
use crate::store::{
    Beat, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store, StoreError,
    StoreLimits, Swap, Swept, Watch,
};

/// Wraps any store. Each planned [`Mishap`] befalls one claim, swap or renewal; all else passes.
///
/// ```
/// use onlyonce::store::conformance::{Faulty, Mishap};
/// use onlyonce::store::memory::MemoryStore;
///
/// let store = Faulty::new(MemoryStore::new());
/// store.plan(Mishap::LostAfter); // the next write is done, but its caller is told `Unsure`
/// ```
#[derive(Debug)]
pub struct Faulty<S> {
    inner: Arc<S>,
    plan: Mutex<VecDeque<Mishap>>,
    held: Mutex<VecDeque<Call>>,
}

/// What befalls a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It is not sent, and its caller is told so.
    NotDone,
    /// It is not sent, and its caller is told `Unsure`.
    LostBefore,
    /// It is done, and its caller is told `Unsure`.
    LostAfter,
    /// It is sent twice; its caller gets the second answer.
    Twice,
    /// It is held back until [`Faulty::deliver`], and its caller is told `Unsure`.
    Late,
    /// It is done and answered, and a copy of it is held back until [`Faulty::deliver`].
    Echo,
}

/// What the store answered to a call that came late.
#[derive(Debug)]
pub enum Reply {
    /// To a claim.
    Claim(Box<Seen>),
    /// To a swap.
    Swap(Swap),
    /// To a renewal.
    Renew(Vec<Beat>),
}

#[derive(Clone, Debug)]
enum Call {
    Claim(Draft),
    Swap(OperationId, Guard, Next),
    Renew(Vec<(OperationId, Token)>, Lease),
}

impl<S> Faulty<S> {
    /// A store without mishaps, until they are planned.
    pub fn new(store: impl Into<Arc<S>>) -> Self {
        Self { inner: store.into(), plan: Mutex::default(), held: Mutex::default() }
    }

    /// Befalls the next claim, swap or renewal that has no mishap planned yet.
    pub fn plan(&self, mishap: Mishap) {
        lock(&self.plan).push_back(mishap);
    }
}

impl<S: Store> Faulty<S> {
    /// Sends the oldest call that was held back, now; `None` if there is none.
    pub async fn deliver(&self) -> Option<Result<Reply, Fault>> {
        let call = lock(&self.held).pop_front()?;
        Some(self.send(call).await)
    }

    async fn call(&self, call: Call) -> Result<Reply, Fault> {
        let planned = lock(&self.plan).pop_front();
        match planned {
            None => self.send(call).await,
            Some(Mishap::NotDone) => Err(Fault::NotDone(cut())),
            Some(Mishap::LostBefore) => Err(Fault::Unsure(cut())),
            Some(Mishap::LostAfter) => {
                self.send(call).await?;
                Err(Fault::Unsure(cut()))
            }
            Some(Mishap::Twice) => {
                self.send(call.clone()).await?;
                self.send(call).await
            }
            Some(Mishap::Late) => {
                lock(&self.held).push_back(call);
                Err(Fault::Unsure(cut()))
            }
            Some(Mishap::Echo) => {
                lock(&self.held).push_back(call.clone());
                self.send(call).await
            }
        }
    }

    async fn send(&self, call: Call) -> Result<Reply, Fault> {
        Ok(match call {
            Call::Claim(draft) => Reply::Claim(Box::new(self.inner.claim(draft).await?)),
            Call::Swap(id, guard, to) => Reply::Swap(self.inner.swap(id, guard, to).await?),
            Call::Renew(held, lease) => Reply::Renew(self.inner.renew(&held, lease).await?),
        })
    }
}

impl<S: Store> Store for Faulty<S> {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        match self.call(Call::Claim(draft)).await? {
            Reply::Claim(seen) => Ok(*seen),
            _ => unreachable!("a claim is answered as a claim"),
        }
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.inner.load(id).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        match self.call(Call::Swap(id, guard, to)).await? {
            Reply::Swap(swap) => Ok(swap),
            _ => unreachable!("a swap is answered as a swap"),
        }
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        match self.call(Call::Renew(held.to_vec(), lease)).await? {
            Reply::Renew(beats) => Ok(beats),
            _ => unreachable!("a renewal is answered as a renewal"),
        }
    }
}

impl<S: Watch> Watch for Faulty<S> {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.inner.changed(id)
    }
}

impl<S: Maintain> Maintain for Faulty<S> {
    async fn scan(&self, query: Scan) -> Result<Page, Fault> {
        self.inner.scan(query).await
    }

    async fn sweep(&self, until: StoreTime, limit: usize) -> Result<Swept, Fault> {
        self.inner.sweep(until, limit).await
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

impl<S: Maintain> Inspect for Faulty<S> {}

fn cut() -> StoreError {
    StoreError::Unavailable("the connection was cut".into())
}

fn lock<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
