//! Connections to a service, and requests that are sent on them at most once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::tls;

/// One service, and the connections of one thread to it.
pub(super) struct Upstream {
    scheme: Scheme,
    host: String,
    port: u16,
    authority: String,
    tls: Option<TlsConnector>,
    /// In the order in which they were used last.
    kept: Mutex<Vec<(http1::SendRequest<Body>, Instant)>>,
    shared: tokio::sync::Mutex<Option<http2::SendRequest<Body>>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("authority", &self.authority).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    H2c,
    Https,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    /// Nothing of the request left this process.
    #[error("the request was not sent")]
    NotSent(#[source] BoxError),
    /// It may have been received.
    #[error("the request was sent and not answered")]
    Sent(#[source] BoxError),
}

impl Upstream {
    pub(super) fn new(uri: &Uri) -> Result<Self, BoxError> {
        let (scheme, default_port) = match uri.scheme_str() {
            Some("http") => (Scheme::Http, 80),
            Some("h2c") => (Scheme::H2c, 80),
            Some("https") => (Scheme::Https, 443),
            _ => return Err(format!("{uri} is not an http, h2c or https address").into()),
        };
        let authority = uri.authority().ok_or_else(|| format!("{uri} names no host"))?;
        Ok(Self {
            scheme,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(default_port),
            authority: authority.to_string(),
            tls: (scheme == Scheme::Https).then(tls::connector).transpose()?,
            kept: Mutex::default(),
            shared: tokio::sync::Mutex::new(None),
        })
    }

    /// Its host and port, as they were given.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    /// Sends `request` at most once: a connection that closed before it took the request hands it back,
    /// and only then another one is tried.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
        is_grpc: bool,
    ) -> Result<Response<Incoming>, SendError> {
        for _ in 0..CONNECTIONS_TRIED_MAX {
            let sent = match self.connection(is_grpc).await? {
                Connection::One(sender) => self.send_on_one(sender, request).await,
                Connection::Shared(sender) => self.send_on_shared(sender, request).await,
            };
            match sent {
                Ok(response) => return Ok(response),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(judged(failed.into_error())),
                },
            }
        }
        Err(SendError::NotSent("every connection closed before it took the request".into()))
    }

    async fn send_on_one(
        &self,
        mut sender: http1::SendRequest<Body>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = origin_form(request.uri());
        let response = sender.try_send_request(request).await?;
        self.keep(sender);
        Ok(response)
    }

    async fn send_on_shared(
        &self,
        mut sender: http2::SendRequest<Body>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.absolute_form(request.uri());
        sender.try_send_request(request).await
    }

    async fn connection(&self, is_grpc: bool) -> Result<Connection, SendError> {
        let is_shared = self.scheme == Scheme::H2c || (is_grpc && self.scheme == Scheme::Http);
        if !is_shared && let Some(sender) = self.ready() {
            return Ok(Connection::One(sender));
        }
        // Boxed, because the way through TLS would make every request eight kilobytes larger.
        Box::pin(self.open(is_shared)).await
    }

    async fn open(&self, is_shared: bool) -> Result<Connection, SendError> {
        if is_shared {
            return self.shared().await.map(Connection::Shared);
        }
        if self.scheme == Scheme::Https {
            return self.connect_tls().await;
        }
        let stream = self.connect().await?;
        handshake_one(stream).await.map(Connection::One)
    }

    /// The one HTTP/2 connection, made anew if it is gone.
    async fn shared(&self) -> Result<http2::SendRequest<Body>, SendError> {
        let mut shared = self.shared.lock().await;
        if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let sender = handshake_shared(self.connect().await?).await?;
        *shared = Some(sender.clone());
        Ok(sender)
    }

    async fn connect_tls(&self) -> Result<Connection, SendError> {
        let mut shared = self.shared.lock().await;
        if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(Connection::Shared(sender.clone()));
        }
        let connector = self.tls.as_ref().ok_or_else(|| not_sent("no TLS for this upstream"))?;
        let name = ServerName::try_from(self.host.clone()).map_err(not_sent)?;
        let stream = self.connect().await?;
        let handshake = timeout(CONNECT_WAIT, connector.connect(name, stream)).await;
        let stream = handshake.map_err(not_sent)?.map_err(not_sent)?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let sender = handshake_shared(stream).await?;
            *shared = Some(sender.clone());
            return Ok(Connection::Shared(sender));
        }
        drop(shared);
        handshake_one(stream).await.map(Connection::One)
    }

    async fn connect(&self) -> Result<TcpStream, SendError> {
        let connecting = TcpStream::connect((self.host.as_str(), self.port));
        let stream =
            timeout(CONNECT_WAIT, connecting).await.map_err(not_sent)?.map_err(not_sent)?;
        stream.set_nodelay(true).map_err(not_sent)?;
        Ok(stream)
    }

    /// Keeps a connection whose answer may still be on its way: it is ready once that was read to its end.
    /// One that is not kept closes then.
    fn keep(&self, sender: http1::SendRequest<Body>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.retain(|(sender, _)| !sender.is_closed());
        }
        if kept.len() < KEPT_MAX {
            kept.push((sender, Instant::now()));
        }
    }

    /// A connection that is likely still open: of those that are ready, the one that was used last.
    fn ready(&self) -> Option<http1::SendRequest<Body>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.pop_if(|(sender, _)| sender.is_closed()).is_some() {}
        let at = kept.iter().rposition(|(sender, _)| sender.is_ready())?;
        let (sender, used_at) = kept.remove(at);
        if used_at.elapsed() < IDLE_WAIT {
            return Some(sender);
        }
        // Those before it were used even earlier.
        kept.retain(|(sender, _)| !sender.is_ready());
        None
    }

    fn absolute_form(&self, uri: &Uri) -> Uri {
        let scheme = if self.scheme == Scheme::Https { "https" } else { "http" };
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let absolute = format!("{scheme}://{}{path}", self.authority).parse();
        absolute.unwrap_or_else(|_| origin_form(uri))
    }
}

enum Connection {
    One(http1::SendRequest<Body>),
    Shared(http2::SendRequest<Body>),
}

async fn handshake_one<T>(stream: T) -> Result<http1::SendRequest<Body>, SendError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let shaken =
        http1::Builder::new().max_buf_size(READ_BYTES_MAX).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = shaken.map_err(not_sent)?;
    // How it ends is told by the requests on it.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    Ok(sender)
}

async fn handshake_shared<T>(stream: T) -> Result<http2::SendRequest<Body>, SendError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE)
        .max_header_list_size(HEADERS_BYTES_MAX);
    let shaken = timeout(CONNECT_WAIT, builder.handshake(TokioIo::new(stream))).await;
    let (sender, connection) = shaken.map_err(not_sent)?.map_err(not_sent)?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// HTTP/2 says of some streams that they were not looked at: REFUSED_STREAM.
fn judged(error: hyper::Error) -> SendError {
    use std::error::Error as _;
    let reason = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    match reason.and_then(h2::Error::reason) {
        Some(h2::Reason::REFUSED_STREAM) => SendError::NotSent(error.into()),
        _ => SendError::Sent(error.into()),
    }
}

fn not_sent(error: impl Into<BoxError>) -> SendError {
    SendError::NotSent(error.into())
}

fn origin_form(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned();
    path.map_or_else(|| Uri::from_static("/"), Uri::from)
}

/// How many connections are tried that close before they take the request.
const CONNECTIONS_TRIED_MAX: usize = 3;
/// How long a connection may take, DNS and TLS included.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How long a connection is kept without use, and how many are kept.
const IDLE_WAIT: Duration = Duration::from_secs(30);
const KEPT_MAX: usize = 512;
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How much is read ahead of what is asked for on one connection.
const READ_BYTES_MAX: usize = 64 * 1024;
const HEADERS_BYTES_MAX: u32 = 64 * 1024;
