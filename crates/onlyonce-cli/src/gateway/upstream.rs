//! Connections to a service, and requests that are sent on them at most once.

mod answer;
mod begun;
mod counted;
mod pool;
mod shared;
mod single_flight;
mod streams;
mod target;

use std::error::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, InvalidUri, PathAndQuery};
use http::{Method, Request, Response, Uri, Version};
use hyper::client::conn::{TrySendError, http1};
use onlyonce::http::Body;
use onlyonce::http::grpc::is_grpc;
use onlyonce::store::BoxError;
use rustls::AlertDescription;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

pub(super) use self::answer::Answer;
use self::pool::{IDLE_MAX, Pool};
use self::shared::Shared;
use self::single_flight::SingleFlight;
use self::target::{CONNECT_MAX, Connected, Scheme, Target};
use crate::tls::Outward;

/// One service, and the connections of one thread to it.
pub(super) struct Upstream {
    target: Arc<Target>,
    outward: Outward,
    /// What goes before the path of every request: empty, or a path without a slash at its end.
    prefix: String,
    pool: Pool,
    /// The one HTTP/2 connection.
    shared: Arc<Mutex<Option<Arc<Shared>>>>,
    /// The attempt to open the next one: all requests that need it wait for the same attempt.
    opening: SingleFlight<Result<Opened, Arc<dyn Error + Send + Sync>>>,
    /// Whether TLS negotiated HTTP/1.1 the last time. Then every request opens its own connection at once.
    speaks_http1: AtomicBool,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("authority", &self.target.authority)
            .finish_non_exhaustive()
    }
}

/// What a request asks of the connection that it is sent on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    connect_max: Duration,
    idle_max: Duration,
}

impl Terms {
    /// Connecting takes at most [`CONNECT_MAX`] and at most half of `answer_max`, the time for the whole call.
    /// So it is given up well before the timer of the layer, which counts everything as sent, and the service
    /// has the other half for its answer.
    ///
    /// A service may close a connection that has been idle for `idle_max` at the very moment when a request
    /// is sent on it, and then nobody knows what became of the request. Only a safe request takes an older
    /// one.
    pub(super) fn new(answer_max: Duration, idle_max: Duration) -> Self {
        Self { connect_max: CONNECT_MAX.min(answer_max / 2), idle_max }
    }

    fn idle_max(&self, method: &Method) -> Duration {
        if method.is_safe() { IDLE_MAX } else { self.idle_max }
    }
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
    pub(super) fn new(uri: &Uri, outward: &Outward) -> Result<Self, BoxError> {
        Ok(Self {
            target: Arc::new(Target::new(uri, outward)?),
            outward: outward.clone(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            pool: Pool::default(),
            shared: Arc::default(),
            opening: SingleFlight::default(),
            speaks_http1: AtomicBool::new(false),
        })
    }

    /// Whether a connection that is made so would be like those that there are.
    pub(super) fn speaks(&self, outward: &Outward) -> bool {
        self.target.scheme != Scheme::Https || self.outward == *outward
    }

    /// Sends `request` at most once: a connection that closed before it took the request hands it back,
    /// and only then another one is tried.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
        terms: Terms,
    ) -> Result<Response<Answer>, SendError> {
        let until = Instant::now() + terms.connect_max;
        let idle_max = terms.idle_max(request.method());
        let protocol = self.protocol(request.headers());
        let path = self.path(request.uri()).map_err(|error| SendError::NotSent(error.into()))?;
        for _ in 0..CONNECTIONS_TRIED_MAX {
            let (connection, has_answered) = self.connection(protocol, idle_max, until).await?;
            // A timeout looks at the clock only while it waits, and the process may have been paused.
            if Instant::now() >= until {
                return Err(SendError::NotSent("the time for a connection is over".into()));
            }
            let sent = match connection {
                Connected::Http1(sender) => self.send_http1(sender, &path, request).await,
                Connected::Http2(shared) => match timeout_at(until, shared.stream()).await {
                    Ok(Some(_)) if Instant::now() >= until => {
                        return Err(SendError::NotSent("the time for a stream is over".into()));
                    }
                    Ok(Some(stream)) => self.send_http2(&shared, stream, &path, request).await,
                    Ok(None) => continue,
                    Err(elapsed) => return Err(SendError::NotSent(elapsed.into())),
                },
            };
            match sent {
                Ok(response) => return Ok(response),
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(judged(failed.into_error(), has_answered)),
                },
            }
        }
        Err(SendError::NotSent("every connection closed before it took the request".into()))
    }

    fn protocol(&self, headers: &HeaderMap) -> Protocol {
        match self.target.scheme {
            Scheme::Https => Protocol::Negotiated,
            Scheme::H2c => Protocol::Http2,
            Scheme::Http if is_grpc(headers) => Protocol::Http2,
            Scheme::Http => Protocol::Http1,
        }
    }

    async fn send_http1(
        &self,
        mut sender: http1::SendRequest<Body>,
        path: &PathAndQuery,
        mut request: Request<Body>,
    ) -> Result<Response<Answer>, TrySendError<Request<Body>>> {
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = Uri::from(path.clone());
        let response = sender.try_send_request(request).await?;
        self.pool.keep(sender, response.headers());
        Ok(Answer::of(response, None))
    }

    async fn send_http2(
        &self,
        shared: &Shared,
        stream: OwnedSemaphorePermit,
        path: &PathAndQuery,
        mut request: Request<Body>,
    ) -> Result<Response<Answer>, TrySendError<Request<Body>>> {
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.absolute_form(path, request.headers().get(header::HOST));
        shared.send(stream, request).await
    }

    /// A kept connection that was idle for less than `idle_max`, else a new one, made before `until`; and whether the
    /// service has answered a request on it.
    async fn connection(
        &self,
        protocol: Protocol,
        idle_max: Duration,
        until: Instant,
    ) -> Result<(Connected, bool), SendError> {
        if let Some(connection) = self.kept(protocol, idle_max) {
            // The runtime polls its sockets before this task goes on, and so learns that the service has
            // closed the connection, if it has.
            yield_now().await;
            if !connection.is_closed() {
                let has_answered = match &connection {
                    Connected::Http1(_) => true,
                    Connected::Http2(shared) => shared.has_answered(),
                };
                return Ok((connection, has_answered));
            }
        }
        // Boxed, because the way through TLS would make every request eight kilobytes larger.
        let opened = timeout_at(until, Box::pin(self.open(protocol))).await;
        let opened = opened.unwrap_or_else(|elapsed| Err(elapsed.into()));
        opened.map(|connection| (connection, false)).map_err(SendError::NotSent)
    }

    fn kept(&self, protocol: Protocol, idle_max: Duration) -> Option<Connected> {
        let one = || self.pool.take(idle_max).map(Connected::Http1);
        let shared = || {
            let shared = lock(&self.shared).clone();
            shared.filter(|shared| shared.is_usable(idle_max)).map(Connected::Http2)
        };
        match protocol {
            Protocol::Http1 => one(),
            Protocol::Http2 => shared(),
            Protocol::Negotiated => one().or_else(shared),
        }
    }

    async fn open(&self, protocol: Protocol) -> Result<Connected, BoxError> {
        match protocol {
            Protocol::Http1 => self.target.connect(false).await,
            Protocol::Negotiated if self.speaks_http1.load(Ordering::Relaxed) => {
                self.open_alone().await
            }
            Protocol::Http2 | Protocol::Negotiated => self.open_together().await,
        }
    }

    /// One attempt for all requests that need a connection now. With HTTP/2 they share the connection, and a
    /// slow service makes them wait for one connect, not for one after the other.
    async fn open_together(&self) -> Result<Connected, BoxError> {
        let (target, shared) = (self.target.clone(), self.shared.clone());
        let opened = self.opening.join(async move {
            match target.connect(true).await {
                Ok(Connected::Http2(made)) => {
                    *lock(&shared) = Some(made.clone());
                    Ok(Opened::Http2(made))
                }
                Ok(Connected::Http1(sender)) => {
                    Ok(Opened::Http1(Arc::new(Mutex::new(Some(sender)))))
                }
                Err(error) => Err(error.into()),
            }
        });
        match opened.await.ok_or("the connect was given up")?? {
            Opened::Http2(shared) => Ok(Connected::Http2(shared)),
            Opened::Http1(first_come) => {
                self.speaks_http1.store(true, Ordering::Relaxed);
                let sender = lock(&first_come).take();
                match sender {
                    Some(sender) => Ok(Connected::Http1(sender)),
                    None => self.open_alone().await,
                }
            }
        }
    }

    /// A connection of one's own, to a service that spoke HTTP/1.1 the last time.
    async fn open_alone(&self) -> Result<Connected, BoxError> {
        let connected = self.target.connect(false).await?;
        if let Connected::Http2(made) = &connected {
            self.speaks_http1.store(false, Ordering::Relaxed);
            *lock(&self.shared) = Some(made.clone());
        }
        Ok(connected)
    }

    /// The path that the service sees: that of the client, under the prefix.
    fn path(&self, uri: &Uri) -> Result<PathAndQuery, InvalidUri> {
        match uri.path_and_query() {
            Some(path) if self.prefix.is_empty() || path == "*" => Ok(path.clone()),
            Some(path) => format!("{}{path}", self.prefix).parse(),
            None => format!("{}/", self.prefix).parse(),
        }
    }

    /// Under the host that the client asked for, as over HTTP/1.1: `:authority` and `Host` say the same.
    fn absolute_form(&self, path: &PathAndQuery, host: Option<&HeaderValue>) -> Uri {
        let scheme = if self.target.scheme == Scheme::Https { "https" } else { "http" };
        let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let host = host.filter(|host| !host.as_str().contains('@'));
        let authority = host.map_or_else(|| self.target.authority.clone(), |host| host.to_string());
        let absolute = Uri::builder().scheme(scheme).authority(authority);
        let absolute = absolute.path_and_query(path.clone()).build();
        absolute.unwrap_or_else(|_| Uri::from(path.clone()))
    }
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Http1,
    Http2,
    /// HTTP/1.1 or HTTP/2, as TLS negotiates.
    Negotiated,
}

/// What a shared attempt to connect has opened.
#[derive(Clone)]
enum Opened {
    Http2(Arc<Shared>),
    /// Only one request can use it; the first takes it, the others open their own.
    Http1(Arc<Mutex<Option<http1::SendRequest<Body>>>>),
}

/// A service says in HTTP/2 that it has not processed a request, and will not: REFUSED_STREAM, or a GOAWAY that
/// names an earlier request as the last one. Any other error may come after the request was received. What the service
/// has begun to answer it cannot disown: see [`begun`].
fn judged(error: hyper::Error, has_answered: bool) -> SendError {
    let cause = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    // h2 reports a GOAWAY only to requests after the last one that it names. This needs the gateway's
    // runtimes of one thread each: with several threads, hyper can report it to a request that it is just
    // handing to h2, which may then be sent.
    let is_refused = cause.is_some_and(|cause| {
        let reason = cause.reason();
        cause.is_remote() && (cause.is_go_away() || reason == Some(h2::Reason::REFUSED_STREAM))
    });
    match is_refused || (!has_answered && is_certificate_refused(&error)) {
        true => SendError::NotSent(error.into()),
        false => SendError::Sent(error.into()),
    }
}

/// In TLS 1.3 a service judges our certificate when we may have sent a request already. One that refuses it never ends the
/// handshake, and so reads no request; but not where it has answered one, and refuses the certificate later, as one that
/// was revoked meanwhile.
fn is_certificate_refused(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let cause = cause.and_then(io::Error::get_ref);
    match cause.and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => CERTIFICATE_REFUSED.contains(alert),
        _ => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a service says of a certificate, and of nothing else: RFC 8446 section 6.2.
const CERTIFICATE_REFUSED: [AlertDescription; 7] = [
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::CertificateRequired,
];
/// How many connections are tried that close before they take the request.
const CONNECTIONS_TRIED_MAX: usize = 3;

#[cfg(test)]
mod tests;
