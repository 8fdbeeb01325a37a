//! Upstreams whose connections do as the test says, and which count what they execute.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::wire::Wire;

/// An HTTP/1.1 service. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
    _server: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    executions: AtomicUsize,
}

/// How the connections of a [`Peer`] end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habit {
    /// A request that arrives on a connection which was idle for so long finds it closed: the worst case of
    /// an upstream with this keep-alive timeout.
    pub(super) idle_max: Duration,
    /// A header line of every answer, with its end; or nothing.
    pub(super) line: &'static str,
}

/// Never closes.
pub(super) const PATIENT: Habit = Habit { idle_max: Duration::MAX, line: "" };

impl Peer {
    pub(super) async fn start(habit: Habit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::<Counts>::default();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, counts.clone(), habit));
        Self { address, counts, _server: server }
    }

    pub(super) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    pub(super) fn executions(&self) -> usize {
        self.counts.executions.load(Ordering::Relaxed)
    }
}

async fn serve(listener: TcpListener, counts: Arc<Counts>, habit: Habit) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        counts.connections.fetch_add(1, Ordering::Relaxed);
        connections.spawn(converse(Wire::new(stream), counts.clone(), habit));
    }
}

async fn converse(mut wire: Wire, counts: Arc<Counts>, habit: Habit) {
    let mut idle_since = Instant::now();
    // A gateway that closes the connection ends it, and only that.
    while let Ok(Some(head)) = wire.head().await {
        if idle_since.elapsed() >= habit.idle_max {
            return wire.reset();
        }
        wire.body(&head.headers).await.unwrap();
        counts.executions.fetch_add(1, Ordering::Relaxed);
        let answer = format!("HTTP/1.1 201 Created\r\n{}Content-Length: 4\r\n\r\ndone", habit.line);
        wire.write(answer.as_bytes()).await.unwrap();
        idle_since = Instant::now();
    }
}

/// An upstream whose queue of connections is full: a further one is neither taken nor refused.
#[derive(Debug)]
pub(super) struct Full {
    pub(super) address: SocketAddr,
    socket: Socket,
    _queued: Vec<TcpStream>,
}

impl Full {
    pub(super) async fn start() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = timeout(HANGS, TcpStream::connect(address)).await {
            queued.push(stream.unwrap());
        }
        Self { address, socket, _queued: queued }
    }

    /// Takes connections from now on, and executes.
    pub(super) fn open(self) -> Peer {
        self.socket.listen(128).unwrap();
        let address = self.address;
        let listener = TcpListener::from_std(self.socket.into()).unwrap();
        let counts = Arc::<Counts>::default();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, counts.clone(), PATIENT));
        Peer { address, counts, _server: server }
    }
}

/// An upstream that takes connections and never says a word on them.
pub(super) async fn silent() -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
        }
    });
    (address, server)
}

/// An HTTP/2 service. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Multiplexed {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
    _server: JoinSet<()>,
}

/// How many requests a [`Multiplexed`] takes at once on a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Streams {
    Any,
    One,
    /// And does not answer it.
    OneThatHangs,
}

impl Multiplexed {
    pub(super) async fn start(streams: Streams) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::<Counts>::default();
        let mut server = JoinSet::new();
        server.spawn(serve_http2(listener, counts.clone(), streams));
        Self { address, counts, _server: server }
    }

    pub(super) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    pub(super) fn executions(&self) -> usize {
        self.counts.executions.load(Ordering::Relaxed)
    }
}

async fn serve_http2(listener: TcpListener, counts: Arc<Counts>, streams: Streams) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        counts.connections.fetch_add(1, Ordering::Relaxed);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams((streams != Streams::Any).then_some(1));
        let counts = counts.clone();
        let service = service_fn(move |_| execute(counts.clone(), streams));
        connections.spawn(async move {
            // The gateway may leave at any time.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn execute(
    counts: Arc<Counts>,
    streams: Streams,
) -> Result<Response<http_body_util::Full<Bytes>>, Infallible> {
    counts.executions.fetch_add(1, Ordering::Relaxed);
    if streams == Streams::OneThatHangs {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(http_body_util::Full::from("done"));
    *response.status_mut() = http::StatusCode::CREATED;
    Ok(response)
}

/// A connection to the loopback address that is not there by then hangs.
const HANGS: Duration = Duration::from_millis(300);
