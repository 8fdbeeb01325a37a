//! Places at which everything stands still until it is told to go on.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Frame;
use onlyonce::clock::StoreTime;
use onlyonce::record::Token;
use onlyonce::scope::OperationId;
use onlyonce::store::{
    Beat, BoxError, Draft, Fault, Guard, Inspect, Lease, Maintain, Next, Page, Scan, Seen, Store,
    StoreLimits, Swap, Swept, Watch,
};

/// Where a request is when it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Point {
    /// Its body has not arrived whole.
    Body,
    /// The claim is on its way to the store.
    ClaimSent,
    /// The claim is in the store, and the answer is on its way back.
    ClaimCommitted,
    /// The handler is called and has done nothing yet.
    BeforeSend,
    /// The handler has done its work and sends no head yet.
    Headers,
    /// A part of the answer is there.
    MidBody,
    /// The outcome is on its way to the store.
    SettleSent,
    /// The outcome is in the store, and the answer is on its way back.
    SettleCommitted,
}

impl Point {
    pub(crate) const ALL: [Self; 8] = [
        Self::Body,
        Self::ClaimSent,
        Self::ClaimCommitted,
        Self::BeforeSend,
        Self::Headers,
        Self::MidBody,
        Self::SettleSent,
        Self::SettleCommitted,
    ];
}

/// Stops whoever comes to a point, until [`go`](Self::go); once [`open`](Self::open), nobody.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<Mutex<Standing>>);

#[derive(Default)]
struct Standing {
    is_open: bool,
    at: Option<Point>,
    may_go: bool,
    waker: Option<Waker>,
}

impl Steps {
    /// Who stands where.
    pub(crate) fn at(&self) -> Option<Point> {
        self.lock().at
    }

    /// Lets the one who stands go on, to the next point.
    pub(crate) fn go(&self) {
        let mut standing = self.lock();
        standing.may_go = standing.at.take().is_some();
        standing.waker.take().into_iter().for_each(Waker::wake);
    }

    /// From now on nobody stands anywhere.
    pub(crate) fn open(&self) {
        self.lock().is_open = true;
        self.go();
    }

    pub(crate) fn pass(&self, point: Point) -> Pass {
        Pass { steps: self.clone(), point, stands: false }
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().expect("no test panics with the steps")
    }
}

/// One who passes a point.
pub(crate) struct Pass {
    steps: Steps,
    point: Point,
    stands: bool,
}

impl Future for Pass {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let steps = self.steps.clone();
        let mut standing = steps.lock();
        if standing.is_open || (self.stands && standing.may_go) {
            (self.stands, standing.may_go) = (false, false);
            return Poll::Ready(());
        }
        self.stands = true;
        standing.at = Some(self.point);
        standing.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.stands {
            let mut standing = self.steps.lock();
            (standing.at, standing.may_go) = (None, false);
        }
    }
}

/// A body in two frames, with a stop between them.
pub(crate) struct Halting {
    frames: Vec<&'static str>,
    stop: Option<Pass>,
}

impl Halting {
    pub(crate) fn new(first: &'static str, rest: &'static str, stop: Pass) -> Self {
        Self { frames: vec![rest, first], stop: Some(stop) }
    }
}

impl http_body::Body for Halting {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.frames.len() == 1
            && let Some(stop) = &mut self.stop
        {
            std::task::ready!(Pin::new(stop).poll(cx));
            self.stop = None;
        }
        let frame = self.frames.pop();
        Poll::Ready(frame.map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

/// A store that stops before and after it claims and settles.
#[derive(Clone)]
pub(crate) struct Stepped<S> {
    pub(crate) inner: S,
    pub(crate) steps: Steps,
}

impl<S: Store> Store for Stepped<S> {
    async fn claim(&self, draft: Draft) -> Result<Seen, Fault> {
        self.steps.pass(Point::ClaimSent).await;
        let seen = self.inner.claim(draft).await;
        self.steps.pass(Point::ClaimCommitted).await;
        seen
    }

    async fn load(&self, id: OperationId) -> Result<Seen, Fault> {
        self.inner.load(id).await
    }

    async fn swap(&self, id: OperationId, guard: Guard, to: Next) -> Result<Swap, Fault> {
        if !matches!(to, Next::Completed { .. }) {
            return self.inner.swap(id, guard, to).await;
        }
        self.steps.pass(Point::SettleSent).await;
        let swap = self.inner.swap(id, guard, to).await;
        self.steps.pass(Point::SettleCommitted).await;
        swap
    }

    async fn renew(&self, held: &[(OperationId, Token)], lease: Lease) -> Result<Vec<Beat>, Fault> {
        self.inner.renew(held, lease).await
    }
}

impl<S: Watch> Watch for Stepped<S> {
    fn changed(&self, id: OperationId) -> impl Future<Output = ()> + Send + 'static {
        self.inner.changed(id)
    }
}

impl<S: Maintain> Maintain for Stepped<S> {
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

impl<S: Maintain> Inspect for Stepped<S> {}
