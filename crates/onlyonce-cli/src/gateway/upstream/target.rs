//! Where a service is, and how a connection to it is made.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::lookup_host;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::counted::Counted;
use super::shared::Shared;
use super::single_flight::SingleFlight;
use crate::tls::Outward;

/// Where a service is.
pub(super) struct Target {
    pub(super) scheme: Scheme,
    pub(super) authority: String,
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    lookup: SingleFlight<Result<Arc<[SocketAddr]>, Arc<io::Error>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    H2c,
    Https,
}

/// A connection that is ready for a request.
pub(super) enum Connected {
    Http1(http1::SendRequest<Body>),
    Http2(Arc<Shared>),
}

impl Connected {
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(shared) => shared.is_closed(),
        }
    }
}

impl Target {
    pub(super) fn new(uri: &Uri, outward: &Outward) -> Result<Self, BoxError> {
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http") => (Scheme::Http, 80),
            Some("h2c") => (Scheme::H2c, 80),
            Some("https") => (Scheme::Https, 443),
            _ => return Err(format!("{uri} is not an http, h2c or https address").into()),
        };
        let authority = uri.authority().ok_or_else(|| format!("{uri} names no host"))?;
        Ok(Self {
            scheme,
            authority: authority.to_string(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(default_port),
            tls: (scheme == Scheme::Https).then(|| outward.connector()).transpose()?,
            lookup: SingleFlight::default(),
        })
    }

    /// A new connection, from the look-up of the host to the end of the TLS handshake within
    /// [`CONNECT_MAX`]. TLS negotiates which HTTP is spoken; without TLS it is as `is_http2` says.
    pub(super) async fn connect(&self, is_http2: bool) -> Result<Connected, BoxError> {
        timeout(CONNECT_MAX, self.connect_unbounded(is_http2)).await?
    }

    async fn connect_unbounded(&self, is_http2: bool) -> Result<Connected, BoxError> {
        let stream = Counted::connect(&self.addresses().await?).await?;
        let Some(connector) = &self.tls else {
            return handshake(stream, is_http2).await;
        };
        let name = ServerName::try_from(self.host.clone())?;
        let stream = connector.connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        handshake(stream, is_http2).await
    }

    /// One look-up at a time: the resolver blocks a thread for as long as it takes.
    async fn addresses(&self) -> Result<Arc<[SocketAddr]>, BoxError> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(Arc::new([SocketAddr::new(address, self.port)]));
        }
        let host = (self.host.clone(), self.port);
        let found = self.lookup.join(async {
            let found = timeout(CONNECT_MAX, lookup_host(host)).await;
            let found = found.unwrap_or_else(|elapsed| Err(elapsed.into()));
            found.map(Iterator::collect).map_err(Arc::new)
        });
        Ok(found.await.ok_or("the look-up of the host was given up")??)
    }
}

async fn handshake<T>(stream: T, is_http2: bool) -> Result<Connected, BoxError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match is_http2 {
        true => Shared::handshake(stream).await.map(|made| Connected::Http2(Arc::new(made))),
        false => handshake_http1(stream).await.map(Connected::Http1),
    }
}

async fn handshake_http1<T>(stream: T) -> Result<http1::SendRequest<Body>, BoxError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(READ_BYTES_MAX);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // Requests on the connection get its error from hyper.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(sender)
}

/// How much is read ahead on one connection of what nobody has asked for yet; the largest head of an answer.
const READ_BYTES_MAX: usize = 64 * 1024;
/// How long a connection may take, from the look-up of its host to the end of its TLS handshake.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(5);
