//! A connection with or without TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::torture::target::Address;

/// Opens connections to one address.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) address: Address,
    tls: Option<TlsConnector>,
}

/// An open connection.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    /// `config` is needed for https; `protocol` is what is asked for there.
    pub(crate) fn new(
        address: &Address,
        config: Option<&rustls::ClientConfig>,
        protocol: &str,
    ) -> Self {
        let tls = config.filter(|_| address.is_tls).map(|config| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            TlsConnector::from(Arc::new(config))
        });
        Self { address: address.clone(), tls }
    }

    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        let Address { host, port, .. } = &self.address;
        let connecting = TcpStream::connect((host.as_str(), *port));
        let tcp = timeout(CONNECT_TIMEOUT, connecting).await??;
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(tcp)) };
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let shaking_hands = timeout(CONNECT_TIMEOUT, tls.connect(name, tcp));
        Ok(Stream::Tls(Box::new(shaking_hands.await??)))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Stream {
    /// From now on, to drop it is to reset the connection.
    pub(crate) fn reset_when_dropped(&self) {
        // Where it cannot be set, the connection ends in order: a fault as well, if a milder one.
        let _ = socket2::SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
    }

    /// Ends the connection in order. What has come is read: to close with unread bytes is to reset.
    pub(crate) async fn close(mut self) {
        // Fails where the other side has ended it.
        let _ = self.shutdown().await;
        let mut chunk = [0; 4096];
        for _ in 0..UNREAD_CHUNKS_MAX {
            let read = timeout(UNREAD_PAUSE, self.read(&mut chunk)).await;
            if !matches!(read, Ok(Ok(bytes)) if bytes > 0) {
                return;
            }
        }
    }

    /// Waits for so long, but not once bytes have come.
    pub(crate) async fn until_readable(&self, time: Duration) {
        // What failed shows at the next read.
        let _ = timeout(time, self.tcp().readable()).await;
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long bytes are waited for that the other side has sent before it heard of the end.
const UNREAD_PAUSE: Duration = Duration::from_millis(2);
const UNREAD_CHUNKS_MAX: usize = 256;
