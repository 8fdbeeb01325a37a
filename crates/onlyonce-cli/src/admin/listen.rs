//! The connections of operators, on a thread of their own.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::desk::Desk;
use super::watch;
use crate::connections::{ConnectionState, Connections, IDLE_MAX, Slot};
use crate::gateway::Stage;
use crate::tls::{Handshakes, shaken};

/// Serves until the other listeners have ended: whoever probes sees that the gateway drains, and that it lives.
///
/// `acceptor` tells how TLS is spoken with the next one who connects, if it is.
pub(crate) async fn serve(
    listener: TcpListener,
    connections: Connections,
    acceptor: impl Fn() -> Option<TlsAcceptor>,
    desk: Desk,
) -> io::Result<()> {
    let mut stage = desk.stage.clone();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    tokio::spawn(watch::events(desk.clone()));
    tokio::spawn(watch::samples(desk.clone()));
    tokio::spawn(watch::moving(desk.clone()));
    tokio::select! {
        _ = stage.wait_for(|stage| *stage >= Stage::Ended) => {}
        () = accept(&listener, &connections, acceptor, desk) => {}
    }
    Ok(())
}

async fn accept(
    listener: &tokio::net::TcpListener,
    connections: &Connections,
    acceptor: impl Fn() -> Option<TlsAcceptor>,
    desk: Desk,
) {
    let mut handshakes = Handshakes::new(HANDSHAKES_MAX);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                connections.not_accepted(&error).await;
                continue;
            }
        };
        // Over the bound, and with nobody who can make room, the connection is closed at once.
        let Some(slot) = connections.admit(&ConnectionState::default()).await else { continue };
        close_if_unread(&stream);
        match acceptor() {
            None => drop(tokio::spawn(connection(stream, desk.clone(), slot))),
            Some(tls) => handshakes.begin(secured(tls, stream, desk.clone(), slot)),
        }
    }
}

async fn secured(tls: TlsAcceptor, stream: TcpStream, desk: Desk, slot: Slot) {
    let state = slot.state().clone();
    let shaken = tokio::select! {
        shaken = shaken(&tls, stream) => shaken,
        () = state.told_to_leave() => None,
    };
    if let Some(stream) = shaken {
        tokio::spawn(connection(stream, desk, slot));
    }
}

/// A peer that reads nothing for so long is gone. Where the system does not know this, it stays until it closes.
fn close_if_unread(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(UNREAD_WAIT));
}

/// Serves a connection until it ends by itself, nothing was asked on it for too long, or another one needs its room.
async fn connection<T>(stream: T, desk: Desk, slot: Slot)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (state, slot) = (slot.state().clone(), Arc::new(slot));
    let service = service_fn(move |request| {
        let (desk, slot) = (desk.clone(), slot.clone());
        async move { Ok::<_, Infallible>(desk.answer(request, &slot).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // How a connection ends is its peer's affair.
        _ = serving => {}
        () = silent(&state) => {}
        () = state.told_to_leave() => {}
    }
}

/// Ends if the first head does not come in time.
async fn silent(state: &ConnectionState) {
    sleep(FIRST_HEAD_WAIT).await;
    if state.has_asked() {
        std::future::pending::<()>().await;
    }
}

/// All connections may be handshakes of TLS: which of them makes room is decided with all others.
const HANDSHAKES_MAX: usize = 512;
/// How long a caller may take for its first head: nobody connects before it has something to ask.
const FIRST_HEAD_WAIT: Duration = Duration::from_secs(5);
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long an answer may lie unread.
const UNREAD_WAIT: Duration = Duration::from_secs(60);
