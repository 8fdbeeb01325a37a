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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::desk::Desk;
use super::watch;
use crate::gateway::Stage;
use crate::tls::{Handshakes, shaken};

/// Serves until the other listeners have ended: whoever probes sees that the gateway drains, and that it lives.
///
/// `acceptor` tells how TLS is spoken with the next one who connects, if it is.
pub(crate) async fn serve(
    listener: TcpListener,
    acceptor: impl Fn() -> Option<TlsAcceptor>,
    desk: Desk,
) -> io::Result<()> {
    let mut stage = desk.stage.clone();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut handshakes = Handshakes::new(HANDSHAKES_MAX);
    tokio::spawn(watch::events(desk.clone()));
    tokio::spawn(watch::samples(desk.clone()));
    tokio::spawn(watch::moving(desk.clone()));
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Ended) => return Ok(()),
            accepted = listener.accept() => match accepted {
                // Over the bound the connection is closed at once.
                Ok((stream, _)) => if let Ok(place) = places.clone().try_acquire_owned() {
                    match acceptor() {
                        None => drop(tokio::spawn(plain(stream, desk.clone(), place))),
                        Some(tls) => handshakes.begin(secured(tls, stream, desk.clone(), place)),
                    }
                },
                // No file descriptors, or a peer that left: the next accept may work.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
        }
    }
}

async fn plain(stream: TcpStream, desk: Desk, place: OwnedSemaphorePermit) {
    close_if_unread(&stream);
    connection(stream, desk, place).await;
}

async fn secured(tls: TlsAcceptor, stream: TcpStream, desk: Desk, place: OwnedSemaphorePermit) {
    close_if_unread(&stream);
    if let Some(stream) = shaken(&tls, stream).await {
        tokio::spawn(connection(stream, desk, place));
    }
}

/// A peer that reads nothing for so long is gone. Where the system does not know this, it stays until it closes.
fn close_if_unread(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(UNREAD_WAIT));
}

async fn connection<T>(stream: T, desk: Desk, _place: OwnedSemaphorePermit)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.answer(request).await) }
    });
    // How a connection ends is its peer's affair.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

const CONNECTIONS_MAX: usize = 256;
/// So many of them may be handshakes of TLS.
const HANDSHAKES_MAX: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a caller may take for a head, and be silent between two.
const HEAD_WAIT: Duration = Duration::from_secs(30);
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long an answer may lie unread.
const UNREAD_WAIT: Duration = Duration::from_secs(60);
