//! The listener, and its connections on a thread per core.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::Instrument;

use super::Stage;
use super::app::{Answering, App};
use super::connection_state::ConnectionState;
use super::forward::Client;
use super::headers::Origin;
use super::telemetry;
use super::wire::{HEAD_BYTES_MAX, Watched};
use crate::tls::{ClientCertificate, Handshakes, shaken};

/// The address is this process's alone: a second gateway on the port, with another store, would get half of the
/// retries.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A gateway that starts again need not wait until the connections of the last one are forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection that was accepted and is not served yet.
type Accepted = (std::net::TcpStream, SocketAddr);

/// The queue of one serving thread.
pub(super) fn queue() -> (mpsc::Sender<Accepted>, mpsc::Receiver<Accepted>) {
    mpsc::channel(ACCEPTED_MAX)
}

/// Accepts until the gateway drains, and gives the connections to the serving threads in turn.
pub(super) async fn accept(
    listener: TcpListener,
    threads: Vec<mpsc::Sender<Accepted>>,
    mut stage: watch::Receiver<Stage>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    for thread in threads.iter().cycle() {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => break,
            accepted = next(&listener) => {
                // A thread that failed serves nobody, and its connection is closed.
                let _ = thread.send(accepted).await;
            }
        }
    }
    Ok(())
}

async fn next(listener: &tokio::net::TcpListener) -> Accepted {
    loop {
        match listener.accept().await.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok(accepted) => return accepted,
            // No file descriptors, or a peer that left: the next accept may work.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves what is accepted until the gateway drains, then lets the requests that are there end, within `drain`.
pub(super) async fn serve(
    mut accepted: mpsc::Receiver<Accepted>,
    app: App,
    mut stage: watch::Receiver<Stage>,
    drain: Duration,
) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut handshakes = Handshakes::new(HANDSHAKES_MAX);
    while let Some((stream, peer)) = accepted.recv().await {
        // The system may refuse to watch one more; that connection is closed.
        let Ok(stream) = TcpStream::from_std(stream) else { continue };
        // Over the bound the connection is closed at once.
        let Ok(place) = connections.clone().try_acquire_owned() else { continue };
        // A peer that left shows at the first read.
        let _ = stream.set_nodelay(true);
        let arrival = Arrival { peer, app: app.clone(), place, watcher: graceful.watcher() };
        match app.acceptor() {
            None => arrival.plain(stream),
            Some(acceptor) => handshakes.begin(arrival.secured(acceptor, stream)),
        }
    }
    // Nobody has asked for anything on them.
    handshakes.end();
    // What has not ended by then is cut off, and its operation is unknown. An operation whose client has left
    // has no connection, and runs on this runtime all the same.
    let drained = stage.wait_for(|stage| *stage >= Stage::Drained);
    let _ = tokio::join!(timeout(drain, graceful.shutdown()), drained);
    Ok(())
}

/// A connection that has its place, and is not served yet.
struct Arrival {
    peer: SocketAddr,
    app: App,
    place: OwnedSemaphorePermit,
    watcher: Watcher,
}

impl Arrival {
    async fn secured(self, acceptor: TlsAcceptor, stream: TcpStream) {
        if let Some(stream) = shaken(&acceptor, stream).await {
            let certificate = ClientCertificate::of(stream.get_ref().1);
            let client = client(Origin::new(self.peer, true), certificate);
            self.serve(stream, client);
        }
    }

    fn plain(self, stream: TcpStream) {
        let client = client(Origin::new(self.peer, false), None);
        self.serve(stream, client);
    }

    fn serve<T>(self, stream: T, client: Arc<Client>)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (app, state) = (self.app, client.state.clone());
        let io = TokioIo::new(Watched::new(stream, state.clone(), self.place));
        let service = service_fn(move |mut request: hyper::Request<Incoming>| -> Answering {
            request.extensions_mut().insert(client.clone());
            let span = telemetry::span_of(&request);
            let answering = app.clone().answer(request, client.state.begin());
            if span.is_disabled() {
                return Box::pin(answering);
            }
            Box::pin(async move {
                let Ok(answer) = answering.instrument(span.clone()).await;
                span.record("status", answer.status().as_u16());
                Ok(answer)
            })
        });
        let connection = builder().serve_connection_with_upgrades(io, service).into_owned();
        let serving = tokio::spawn(self.watcher.watch(connection));
        tokio::spawn(close_if_stalled(serving, state));
    }
}

fn client(origin: Origin, certificate: Option<ClientCertificate>) -> Arc<Client> {
    Arc::new(Client { origin, state: ConnectionState::default(), certificate })
}

/// Closes a connection that makes no progress. In a task of its own, so that a request does not look at the timer.
async fn close_if_stalled<T>(mut serving: JoinHandle<T>, state: ConnectionState) {
    tokio::select! {
        biased;
        // How a connection ends is its peer's affair.
        _ = &mut serving => {}
        () = state.stalled() => serving.abort(),
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(STREAM_SEND_BYTES_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX);
    builder
}

const BACKLOG: i32 = 1024;
/// Connections that wait for one thread.
const ACCEPTED_MAX: usize = 64;
/// Connections of one thread.
const CONNECTIONS_MAX: usize = 10_000;
/// So many of them may be handshakes of TLS.
const HANDSHAKES_MAX: usize = 1_000;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client may take for a head, and be silent between two.
const HEAD_WAIT: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// What is buffered of a streamed answer that its client does not read, for each stream.
const STREAM_SEND_BYTES_MAX: usize = 16 * 1024;
/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Streams that a peer may reset before its connection is closed.
const RESETS_MAX: usize = 64;
