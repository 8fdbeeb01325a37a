//! A request's future is dropped at every poll, and its runtime dies at every poll: nothing is
//! executed twice, nothing stays running, and nothing is released that was sent.

#![cfg(all(feature = "memory", feature = "tower"))]

mod faults;
#[path = "drop_at_every_poll/steps.rs"]
mod steps;

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use onlyonce::http::Body;
use onlyonce::record::StateKind;
use onlyonce::store::memory::MemoryStore;
use onlyonce::store::{BoxError, Inspect, Store, Watch};
use onlyonce::{Once, Policy};
use tokio::runtime::Runtime;
use tower_service::Service;

use faults::app::{App, Got, Handler, charge, charge_with, retry_until_ended, send};
use faults::{soon, state, until, until_state};
use steps::{Halting, Point, Stepped, Steps};

// threat A12, R61, R90
#[test]
fn a_request_dropped_at_any_poll_is_executed_once_and_replayed() {
    each_poll(MemoryStore::new, hang_up);
}

// threat A12, R87
#[test]
fn a_runtime_that_dies_at_any_poll_leaves_unknown_what_was_sent_and_frees_what_was_not() {
    each_poll(MemoryStore::new, die);
}

// threat A12, R87
#[test]
fn a_second_caller_on_another_runtime_never_executes_what_a_dead_one_sent() {
    each_poll(MemoryStore::new, die_with_a_rival);
}

// threat A12, R87, R90
#[cfg(feature = "sqlite")]
#[test]
fn a_store_on_disk_keeps_the_same_promises_at_every_poll() {
    let folder = tempfile::tempdir().expect("a folder");
    each_poll(|| on_disk(&folder), hang_up);
    each_poll(|| on_disk(&folder), die);
    each_poll(|| on_disk(&folder), die_with_a_rival);
}

/// Stops a request after 0, 1, 2… polls until it ends by itself; every point must have been met.
fn each_poll<S>(store: impl Fn() -> S, check: impl Fn(Lab<S>, Stopped))
where
    S: Store + Watch + Inspect + Clone,
{
    let mut met = HashSet::new();
    for polls in 0..POLLS_MAX {
        let lab = Lab::new(store());
        let runtime = runtime();
        match runtime.block_on(lab.request_for(polls)) {
            Driven::Ended(got) => {
                assert!(got.is_fresh(), "{got:?}");
                let missed: Vec<_> = Point::ALL.iter().filter(|p| !met.contains(*p)).collect();
                assert!(missed.is_empty(), "never dropped at {missed:?}");
                return;
            }
            Driven::Stopped { request, at } => {
                met.extend(at.point());
                check(lab, Stopped { runtime, request, at });
            }
        }
    }
    panic!("the request never ended");
}

/// The caller leaves; the runtime goes on.
fn hang_up<S: Store + Watch + Inspect + Clone>(lab: Lab<S>, stopped: Stopped) {
    let Stopped { runtime, request, at } = stopped;
    runtime.block_on(async {
        drop(request);
        lab.steps.open();
        let retry = retry_until_ended(&lab.app, KEY).await;
        assert_eq!(retry.status, 201, "{at:?}: {retry:?}");
        assert_eq!(retry.is_fresh(), !at.is_whole(), "{at:?}");
        assert_eq!(retry.body, "parcel 1");
        lab.ends_with(StateKind::Completed, at).await;
    });
}

/// The runtime goes, and every task on it.
fn die<S: Store + Watch + Inspect + Clone>(lab: Lab<S>, stopped: Stopped) {
    let Stopped { runtime: dying, request, at } = stopped;
    let living = runtime();
    drop(dying);
    lab.steps.open();
    living.block_on(async {
        if at.is_whole() {
            lab.tells_the_truth(request, at).await;
        }
        until_state(&lab.store, at.left_behind()).await;
        let retry = retry_until_ended(&lab.app, KEY).await;
        lab.is_right(&retry, at);
        let ended = at.left_behind().unwrap_or(StateKind::Completed);
        lab.ends_with(ended, at).await;
    });
}

/// The same, while another caller of the key asks from a runtime of its own.
fn die_with_a_rival<S: Store + Watch + Inspect + Clone>(lab: Lab<S>, stopped: Stopped) {
    let Stopped { runtime: dying, request, at } = stopped;
    let living = runtime();
    let app = lab.app.clone();
    let rival = living.spawn(async move { send(&app, charge(KEY)).await });
    // The rival stands behind the claim that is out, or gets its answer; both are good places to be.
    living.block_on(tokio::task::yield_now());
    drop(dying);
    drop(request);
    lab.steps.open();
    living.block_on(async {
        let rival = soon("the rival", rival).await.expect("the rival lives");
        let retry = retry_until_ended(&lab.app, KEY).await;
        assert!(lab.handler.executed() <= 1, "{at:?}: {rival:?}, {retry:?}");
        if at.left_behind() == Some(StateKind::Unknown) {
            assert!(!rival.is_fresh() && !retry.is_fresh(), "{at:?}");
        }
        until("it to end", || async { state(&lab.store).await != Some(StateKind::Running) }).await;
    });
}

/// One key, one handler, one store, and a place for everything to stop.
struct Lab<S> {
    store: S,
    steps: Steps,
    handler: Handler,
    once: Once,
    app: App,
}

impl<S: Store + Watch + Inspect + Clone> Lab<S> {
    fn new(store: S) -> Self {
        let steps = Steps::default();
        let stepped = Stepped { inner: store.clone(), steps: steps.clone() };
        let once = Once::new(stepped);
        let handler = handler(&steps);
        let app = handler.guarded(&once, Policy::default());
        Self { store, steps, handler, once, app }
    }

    /// A request after so many polls, each of which moves the work on by one step.
    async fn request_for(&self, polls: usize) -> Driven {
        let body = Halting::new("{\"amount\"", ":1}", self.steps.pass(Point::Body));
        let mut request: Request = Box::pin(self.app.clone().call(charge_with(KEY, body)));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        for polled in 0..=polls {
            let at = match (polled, self.steps.at()) {
                (0, _) => At::Unpolled,
                (_, Some(point)) => At::Point(point),
                (_, None) => At::Answered,
            };
            if polled == polls {
                return Driven::Stopped { request, at };
            }
            self.steps.go();
            woken.clear();
            if let Poll::Ready(got) = request.as_mut().poll(&mut Context::from_waker(&waker)) {
                let response = got.expect("the layer answers");
                return Driven::Ended(Got::whole(response).await);
            }
            until("the next step", || async { self.steps.at().is_some() || woken.is_set() }).await;
        }
        unreachable!("the loop ends at the last poll")
    }

    /// A caller whose task died hears that nobody knows: it never hangs, and is never told a lie.
    async fn tells_the_truth(&self, request: Request, at: At) {
        let response = soon("the caller's answer", request).await;
        let got = Got::whole(response.expect("the layer answers")).await;
        if at == At::Answered {
            assert!(got.is_fresh(), "{got:?}");
        } else {
            got.assert_problem(502, "idempotency_outcome_unknown");
        }
    }

    /// What a retry gets after the runtime died.
    fn is_right(&self, retry: &Got, at: At) {
        match at.left_behind() {
            None => assert!(retry.is_fresh(), "{at:?}: {retry:?}"),
            Some(StateKind::Completed) => {
                assert!(retry.is_replay(), "{at:?}: {retry:?}");
                assert_eq!(retry.body, "parcel 1");
            }
            Some(_) => retry.assert_problem(409, "idempotency_outcome_unknown"),
        }
    }

    /// Executed at most once, and this is the end of it; nothing is left in the engine either.
    async fn ends_with(self, ended: StateKind, at: At) {
        until_state(&self.store, Some(ended)).await;
        assert_eq!(self.handler.executed(), 1, "{at:?}");
        assert_eq!(self.once.waiting(), 0);
        let left = soon("the shutdown", self.once.shutdown(Duration::from_secs(10))).await;
        assert_eq!(left.unknown, 0, "{at:?}");
    }
}

/// Stops before its work, before its head, and in the middle of its body.
fn handler(steps: &Steps) -> Handler {
    let steps = steps.clone();
    Handler::new(move |_| {
        let steps = steps.clone();
        async move {
            steps.pass(Point::BeforeSend).await;
            steps.pass(Point::Headers).await;
            let body = Halting::new("parcel", " 1", steps.pass(Point::MidBody));
            let mut response = Response::new(body.boxed_unsync());
            *response.status_mut() = http::StatusCode::CREATED;
            Ok(response)
        }
    })
}

type Request = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

enum Driven {
    Ended(Got),
    Stopped { request: Request, at: At },
}

struct Stopped {
    runtime: Runtime,
    request: Request,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Unpolled,
    Point(Point),
    /// The answer is there, and has not been looked at.
    Answered,
}

impl At {
    fn point(self) -> Option<Point> {
        match self {
            Self::Point(point) => Some(point),
            Self::Unpolled | Self::Answered => None,
        }
    }

    /// Whether the request had arrived whole: from then on it belongs to its own task.
    fn is_whole(self) -> bool {
        !matches!(self, Self::Unpolled | Self::Point(Point::Body))
    }

    /// What a runtime that dies here leaves in the store, once the background thread has seen to it.
    fn left_behind(self) -> Option<StateKind> {
        match self {
            Self::Unpolled
            | Self::Point(Point::Body | Point::ClaimSent | Point::ClaimCommitted) => None,
            Self::Point(
                Point::BeforeSend | Point::Headers | Point::MidBody | Point::SettleSent,
            ) => Some(StateKind::Unknown),
            Self::Point(Point::SettleCommitted) | Self::Answered => Some(StateKind::Completed),
        }
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Woken {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn clear(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// An empty store in a file of its own.
#[cfg(feature = "sqlite")]
fn on_disk(folder: &tempfile::TempDir) -> onlyonce::store::sqlite::SqliteStore {
    let own = tempfile::tempdir_in(folder).expect("a folder").keep();
    let store = onlyonce::store::sqlite::SqliteStore::open(own.join("onlyonce.db"));
    runtime().block_on(store).expect("a store")
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

const KEY: &str = "order-4711";
const POLLS_MAX: usize = 100;
