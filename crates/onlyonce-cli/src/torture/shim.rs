//! The service behind the gateway under test: it counts every execution, and misbehaves where the plan says so.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, Limited, StreamBody, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

/// What the service does when a request first arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misbehaviour {
    /// Executes, and answers 500.
    Fails,
    /// Does not execute, and answers 402.
    Declines,
    /// Executes, and cuts the connection.
    CutsAfter,
    /// Cuts the connection without having executed.
    CutsBefore,
    /// Executes, and cuts the connection in the middle of its answer.
    HalfAnswers,
    /// Executes, and takes four times as long.
    Dawdles,
}

impl Misbehaviour {
    /// Status and body of the error that is answered.
    pub(crate) fn error(self) -> Option<(u16, &'static str)> {
        match self {
            Self::Fails => Some((500, "{\"error\":\"it failed after it was done\"}\n")),
            Self::Declines => Some((402, "{\"error\":\"declined\"}\n")),
            Self::CutsAfter | Self::CutsBefore | Self::HalfAnswers | Self::Dawdles => None,
        }
    }
}

/// One arrival at the service.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Since the shim began to listen.
    pub(crate) at: Duration,
    pub(crate) marker: String,
    pub(crate) is_executed: bool,
    /// Method and path, and what was answered.
    pub(crate) told: String,
}

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct Shim {
    pub(crate) address: SocketAddr,
    epoch: Instant,
    /// How long an execution takes.
    time: Duration,
    /// Every marker begins with it.
    prefix: String,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    planned: HashMap<String, Misbehaviour>,
    arrivals: Vec<Arrival>,
    executions: u64,
}

impl Shim {
    /// Listens.
    pub(crate) async fn listen(
        address: SocketAddr,
        time: Duration,
        prefix: &str,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let (address, state) = (listener.local_addr()?, Arc::default());
        let shim = Self { address, epoch: Instant::now(), time, prefix: prefix.to_owned(), state };
        tokio::spawn(shim.clone().serve(listener));
        Ok(shim)
    }

    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// The next arrival with this marker is treated so.
    pub(crate) fn plan(&self, marker: &str, misbehaviour: Misbehaviour) {
        self.state().planned.insert(marker.to_owned(), misbehaviour);
    }

    pub(crate) fn executions(&self, marker: &str) -> u64 {
        let state = self.state();
        let with_marker = state.arrivals.iter().filter(|arrival| arrival.marker == marker);
        with_marker.filter(|arrival| arrival.is_executed).count() as u64
    }

    pub(crate) fn arrivals(&self, marker: &str) -> Vec<Arrival> {
        self.state().arrivals.iter().filter(|arrival| arrival.marker == marker).cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let shim = self.clone();
            let service = service_fn(move |request| {
                let shim = shim.clone();
                async move { shim.answer(request).await.ok_or("the connection is cut") }
            });
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    /// Nothing, if the connection is to be cut.
    async fn answer(&self, request: Request<Incoming>) -> Option<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.ok()?.to_bytes();
        let Some(marker) = self.marker_of(&head, &body) else {
            // A gateway may ask whether the service is there; it gets no answer to any other request that is not ours.
            let is_question = head.method == Method::GET || head.method == Method::HEAD;
            return is_question.then(|| Response::new(whole("")));
        };
        let misbehaviour = self.state().planned.remove(&marker);
        let is_executed =
            !matches!(misbehaviour, Some(Misbehaviour::Declines | Misbehaviour::CutsBefore));
        let told = format!("{} {}", head.method, head.uri.path());
        let at = self.epoch.elapsed();
        let number = self.arrived(Arrival { at, marker: marker.clone(), is_executed, told });
        let times = if misbehaviour == Some(Misbehaviour::Dawdles) { 4 } else { 1 };
        sleep(self.time * times).await;
        let text = format!("{{\"id\":\"x{number}\",\"marker\":\"{marker}\"}}\n");
        let (status, body) = match misbehaviour {
            Some(Misbehaviour::CutsAfter | Misbehaviour::CutsBefore) => return None,
            Some(Misbehaviour::HalfAnswers) => (201, half(&text)),
            other => match other.and_then(Misbehaviour::error) {
                Some((status, error)) => (status, whole(error)),
                None => (201, whole(&text)),
            },
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
        Some(response)
    }

    /// The number of the execution, or of the arrival that was none.
    fn arrived(&self, arrival: Arrival) -> u64 {
        let mut state = self.state();
        state.executions += 1;
        if state.arrivals.len() < ARRIVALS_MAX {
            state.arrivals.push(arrival);
        }
        state.executions
    }

    /// The body's first: a changed request may carry two.
    fn marker_of(&self, head: &http::request::Parts, body: &[u8]) -> Option<String> {
        let in_headers = head.headers.values().map(|value| value.as_bytes().to_vec());
        let places =
            [body.to_vec(), head.uri.to_string().into_bytes()].into_iter().chain(in_headers);
        places.into_iter().find_map(|place| self.marker_in(&place))
    }

    fn marker_in(&self, bytes: &[u8]) -> Option<String> {
        let at = memchr::memmem::find(bytes, self.prefix.as_bytes())?;
        let rest = bytes[at..].iter();
        let marker = rest.take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-');
        Some(marker.map(|byte| char::from(*byte)).collect())
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

fn whole(text: &str) -> Body {
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(|never| match never {}).boxed()
}

/// A body that breaks in its middle.
fn half(text: &str) -> Body {
    let first = Bytes::copy_from_slice(&text.as_bytes()[..text.len() / 2]);
    let broken = std::io::Error::other("the connection is cut");
    let frames = [Ok(Frame::data(first)), Err(broken)];
    BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

/// Longest request that is read.
const BODY_BYTES_MAX: usize = 1 << 20;
/// More arrivals than any plan can cause; what comes after is not counted, and the run has failed long before.
const ARRIVALS_MAX: usize = 200_000;
