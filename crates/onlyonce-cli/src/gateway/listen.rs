//! The listener, and its connections on a thread per core.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::Instrument;

use super::Stage;
use super::app::{Answering, App};
use super::forward::Client;
use super::headers::Origin;
use super::telemetry;
use super::wire::{HEAD_BYTES_MAX, Watched};
use crate::connections::{ConnectionState, Connections, IDLE_MAX, Slot};
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
pub(super) struct Accepted {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    slot: Slot,
}

/// The queue of one serving thread.
pub(super) fn queue() -> (mpsc::Sender<Accepted>, mpsc::Receiver<Accepted>) {
    mpsc::channel(ACCEPTED_MAX)
}

/// Accepts until the gateway drains, and gives the connections to the serving threads.
pub(super) async fn accept(
    listener: TcpListener,
    connections: Connections,
    threads: Vec<mpsc::Sender<Accepted>>,
    mut stage: watch::Receiver<Stage>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let accepting = async {
        for turn in 0.. {
            let (stream, peer) = next(&listener, &connections).await;
            // Over the bound, and with nobody who can make room, the connection is closed at once.
            if let Some(slot) = connections.admit(&ConnectionState::default()).await {
                give(Accepted { stream, peer, slot }, &threads, turn).await;
            }
        }
    };
    tokio::select! {
        _ = stage.wait_for(|stage| *stage >= Stage::Draining) => {}
        () = accepting => {}
    }
    Ok(())
}

async fn next(
    listener: &tokio::net::TcpListener,
    connections: &Connections,
) -> (std::net::TcpStream, SocketAddr) {
    loop {
        match listener.accept().await.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok(accepted) => return accepted,
            Err(error) => connections.not_accepted(&error).await,
        }
    }
}

/// Gives the connection to the thread with the fewest that wait for it; among equals to each in turn. One that is stuck
/// gets no more then. While all queues are full the next connections wait in the system's.
async fn give(accepted: Accepted, threads: &[mpsc::Sender<Accepted>], turn: usize) {
    // A thread that failed serves nobody.
    let open = |thread: &&mpsc::Sender<Accepted>| !thread.is_closed();
    let in_turn = threads.iter().cycle().skip(turn % threads.len().max(1)).take(threads.len());
    // Of equals the last counts.
    let emptiest = in_turn.filter(open).collect::<Vec<_>>().into_iter().rev();
    let Some(emptiest) = emptiest.max_by_key(|thread| thread.capacity()) else { return };
    let full = match emptiest.try_send(accepted) {
        Ok(()) => return,
        Err(TrySendError::Closed(_)) => return,
        Err(TrySendError::Full(accepted)) => accepted,
    };
    let reserved = threads.iter().filter(open).map(|thread| Box::pin(thread.reserve()));
    if let (Ok(permit), ..) = select_all(reserved).await {
        permit.send(full);
    }
}

/// Serves what is accepted until the gateway drains, then lets the requests that are there end, within `drain`.
pub(super) async fn serve(
    mut accepted: mpsc::Receiver<Accepted>,
    app: App,
    mut stage: watch::Receiver<Stage>,
    drain: Duration,
) -> io::Result<()> {
    let (draining, _) = watch::channel(());
    let mut handshakes = Handshakes::new(HANDSHAKES_MAX);
    while let Some(Accepted { stream, peer, slot }) = accepted.recv().await {
        // The system may refuse to watch one more; that connection is closed.
        let Ok(stream) = TcpStream::from_std(stream) else { continue };
        // A peer that left shows at the first read.
        let _ = stream.set_nodelay(true);
        let arrival = Arrival { peer, app: app.clone(), slot, draining: draining.subscribe() };
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
    draining.send_replace(());
    let _ = tokio::join!(timeout(drain, draining.closed()), drained);
    Ok(())
}

/// A connection that has its slot, and is not served yet.
struct Arrival {
    peer: SocketAddr,
    app: App,
    slot: Slot,
    draining: watch::Receiver<()>,
}

impl Arrival {
    async fn secured(self, acceptor: TlsAcceptor, stream: TcpStream) {
        let state = self.slot.state().clone();
        let shaken = tokio::select! {
            shaken = shaken(&acceptor, stream) => shaken,
            () = state.told_to_leave() => None,
        };
        if let Some(stream) = shaken {
            let certificate = ClientCertificate::of(stream.get_ref().1);
            let client = client(Origin::new(self.peer, true), state, certificate);
            self.serve(stream, client);
        }
    }

    fn plain(self, stream: TcpStream) {
        let client = client(Origin::new(self.peer, false), self.slot.state().clone(), None);
        self.serve(stream, client);
    }

    fn serve<T>(self, stream: T, client: Arc<Client>)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (app, state) = (self.app, client.state.clone());
        let io = TokioIo::new(Watched::new(stream, self.slot));
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
        let serving = tokio::spawn(run(connection, state.clone(), self.draining));
        tokio::spawn(watch_over(serving, state));
    }
}

/// Serves a connection. Once the gateway drains, or it is told so, it takes no more requests. Whoever waits for the
/// gateway to have drained waits until `draining` is dropped.
async fn run<C: GracefulConnection>(
    connection: C,
    state: ConnectionState,
    mut draining: watch::Receiver<()>,
) {
    let mut connection = pin!(connection);
    tokio::select! {
        biased;
        _ = draining.changed() => {}
        () = state.told_to_finish() => {}
        // How a connection ends is its peer's affair.
        _ = connection.as_mut() => return,
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Ends a connection that makes no progress, on which nothing is asked, or whose room another one needs. In a task of its
/// own, so that a request does not look at the timers.
async fn watch_over<T>(mut serving: JoinHandle<T>, state: ConnectionState) {
    let wait = tokio::select! {
        biased;
        _ = &mut serving => return,
        () = state.stalled() => Duration::ZERO,
        () = state.told_to_leave() => if state.has_asked() { LEAVE_WAIT } else { Duration::ZERO },
        () = state.idle_http2() => FINISH_WAIT,
    };
    if !wait.is_zero() {
        // A request that comes at this moment is still answered.
        state.finish();
        tokio::select! {
            biased;
            _ = &mut serving => return,
            () = state.stalled() => {}
            () = async { sleep(wait).await; state.idle(wait).await } => {}
        }
    }
    serving.abort();
}

fn client(
    origin: Origin,
    state: ConnectionState,
    certificate: Option<ClientCertificate>,
) -> Arc<Client> {
    Arc::new(Client { origin, state, certificate })
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
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
/// So many connections of a thread may be handshakes of TLS.
const HANDSHAKES_MAX: usize = 1_000;
/// How long a connection that was told to end may stay open without a request: for another one that needs its room,
/// and because nothing was asked on it.
const LEAVE_WAIT: Duration = Duration::from_secs(1);
const FINISH_WAIT: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// What is buffered of a streamed answer that its client does not read, for each stream.
const STREAM_SEND_BYTES_MAX: usize = 16 * 1024;
/// Requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Streams that a peer may reset before its connection is closed.
const RESETS_MAX: usize = 64;

#[cfg(test)]
mod tests;
