//! The service behind the gateway: it counts executions by key, and outlives every gateway.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Takes 0 to 20 ms.
pub(crate) const QUICK: &str = "/quick";
/// Waits until the gate is open.
pub(crate) const GATED: &str = "/gated";
/// Answers at once, with [`LARGE_BYTES`] or a little more.
pub(crate) const LARGE: &str = "/large";
pub(crate) const LARGE_BYTES: usize = 900 * 1024;

/// A running upstream. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: Arc<Ledger>,
    _server: JoinSet<()>,
}

impl Upstream {
    /// Its gate is closed.
    pub(crate) async fn start() -> Self {
        let ledger = Arc::<Ledger>::default();
        let app = Router::new()
            .route(QUICK, post(quick))
            .route(GATED, post(gated))
            .route(LARGE, post(large))
            .with_state(ledger.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, ledger, _server: server }
    }

    pub(crate) fn open_gate(&self) {
        self.ledger.gate.send_replace(true);
    }

    pub(crate) fn close_gate(&self) {
        self.ledger.gate.send_replace(false);
    }

    /// How many executions are at work.
    pub(crate) fn executing(&self) -> usize {
        self.ledger.books().executing
    }

    /// The answers of every execution of `key`.
    pub(crate) fn executions(&self, key: &str) -> Vec<Bytes> {
        self.ledger.books().executions.get(key).cloned().unwrap_or_default()
    }

    /// The answers of every execution, by key.
    pub(crate) fn all_executions(&self) -> HashMap<String, Vec<Bytes>> {
        self.ledger.books().executions.clone()
    }

    /// Whether the last byte of the answer for `key` has left.
    pub(crate) fn has_answered(&self, key: &str) -> bool {
        self.ledger.books().answered.contains(key)
    }
}

#[derive(Debug, Default)]
struct Ledger {
    books: Mutex<Books>,
    gate: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Books {
    executions: HashMap<String, Vec<Bytes>>,
    answered: HashSet<String>,
    executing: usize,
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }
}

async fn quick(State(ledger): State<Arc<Ledger>>, headers: HeaderMap) -> Response {
    let execution = Execution::begin(ledger, &headers, 1);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=20))).await;
    execution.answer()
}

async fn gated(State(ledger): State<Arc<Ledger>>, headers: HeaderMap) -> Response {
    let mut gate = ledger.gate.subscribe();
    let execution = Execution::begin(ledger, &headers, 1);
    gate.wait_for(|open| *open).await.unwrap();
    execution.answer()
}

async fn large(State(ledger): State<Arc<Ledger>>, headers: HeaderMap) -> Response {
    Execution::begin(ledger, &headers, LARGE_BYTES).answer()
}

/// One execution: it counts from its first moment, and is at work until it is dropped.
struct Execution {
    ledger: Arc<Ledger>,
    key: String,
    answer: Bytes,
}

impl Execution {
    /// Its answer has at least `bytes`, and is one that no second execution would repeat.
    fn begin(ledger: Arc<Ledger>, headers: &HeaderMap, bytes: usize) -> Self {
        let key = headers.get("idempotency-key");
        let key = key.map_or("none", |key| key.to_str().unwrap()).to_owned();
        let line = format!("{key} {:032x}\n", fastrand::u128(..));
        let answer = Bytes::from(line.repeat(bytes.div_ceil(line.len())));
        let mut books = ledger.books();
        let executions = books.executions.entry(key.clone()).or_default();
        executions.push(answer.clone());
        books.executing += 1;
        drop(books);
        Self { ledger, key, answer }
    }

    fn answer(self) -> Response {
        let body = Answer { body: Full::new(self.answer.clone()), execution: self };
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = StatusCode::CREATED;
        response
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.ledger.books().executing -= 1;
    }
}

/// The body of an answer. The server drops it when it has written its end.
struct Answer {
    body: Full<Bytes>,
    execution: Execution,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let key = self.execution.key.clone();
        self.execution.ledger.books().answered.insert(key);
    }
}
