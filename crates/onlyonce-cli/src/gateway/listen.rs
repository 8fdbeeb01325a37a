//! Listeners and connections, one thread per core.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::Stage;
use super::app::{Answering, App};
use super::forward::Client;
use super::headers::Origin;
use super::outgoing::Outgoing;
use super::wire::{HEAD_BYTES_MAX, Line, Watched};

/// So many handles of one listener, a thread each. The address is this process's alone: a second gateway on the
/// port, with another store, would get half of the retries.
pub(super) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    let listener = bind_one(address)?;
    let mut listeners = (1..count).map(|_| listener.try_clone()).collect::<io::Result<Vec<_>>>()?;
    listeners.push(listener);
    Ok(listeners)
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A gateway that starts again need not wait until the connections of the last one are forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Serves until the gateway drains, then lets the requests that are there end, within `drain`.
pub(super) async fn serve(
    listener: TcpListener,
    app: (App, Outgoing),
    mut stage: watch::Receiver<Stage>,
    drain: Duration,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => connect(stream, peer, &app, &connections, &graceful),
                // No file descriptors, or a peer that left: the next accept may work.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    // What has not ended by then is cut off, and its operation is unknown. An operation whose client has left
    // has no connection, and runs on this runtime all the same.
    let drained = stage.wait_for(|stage| *stage >= Stage::Drained);
    let _ = tokio::join!(timeout(drain, graceful.shutdown()), drained);
    Ok(())
}

fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    (app, outgoing): &(App, Outgoing),
    connections: &Arc<Semaphore>,
    graceful: &GracefulShutdown,
) {
    // Over the bound the connection is closed at once.
    let Ok(permit) = connections.clone().try_acquire_owned() else {
        return;
    };
    // A peer that left shows at the first read.
    let _ = stream.set_nodelay(true);
    let (app, outgoing) = (app.clone(), outgoing.clone());
    let client = Arc::new(Client { origin: Origin::new(peer), line: Line::default() });
    let line = client.line.clone();
    let io = TokioIo::new(Watched::new(stream, line.clone()));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| -> Answering {
        request.extensions_mut().insert(client.clone());
        let (app, outgoing, line) = (app.clone(), outgoing.clone(), client.line.clone());
        let (in_flight, version) = (line.begin(), request.version());
        Box::pin(async move {
            let Ok(answer) = app.answer(request).await;
            drop(in_flight);
            Ok(outgoing.held(answer, &line, version))
        })
    });
    let builder = builder();
    let watcher = graceful.watcher();
    tokio::spawn(async move {
        let connection = builder.serve_connection_with_upgrades(io, service);
        // How a connection ends is its peer's affair; one that makes no progress is closed.
        tokio::select! {
            biased;
            _ = watcher.watch(connection.into_owned()) => {}
            () = line.stalled() => {}
        }
        drop(permit);
    });
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
/// Connections of one thread.
const CONNECTIONS_MAX: usize = 10_000;
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
