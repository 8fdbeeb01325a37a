//! An HTTP/2 connection, which many requests use at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::answer::Answer;

/// An HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Shared {
    sender: SendRequest<Body>,
    /// When the head of an answer arrived last, or the connection was made.
    used_at: Mutex<Instant>,
    /// A permit for each further stream that the service allows. Without it hyper would queue the request
    /// for a stream, and a queued request looks the same as one that was sent.
    streams: Arc<Semaphore>,
}

impl Shared {
    pub(super) async fn handshake<T>(stream: T) -> Result<Self, BoxError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .max_header_list_size(HEADERS_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        let streams = Arc::new(Semaphore::new(STREAMS_AT_FIRST));
        tokio::spawn(drive(connection, streams.clone()));
        Ok(Self { sender, used_at: Mutex::new(Instant::now()), streams })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether it is open and an answer arrived on it within `idle_max`.
    pub(super) fn is_usable(&self, idle_max: Duration) -> bool {
        let used_at = *self.used_at.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_closed() && used_at.elapsed() < idle_max
    }

    /// Waits for a stream; an error is the end of the connection.
    pub(super) async fn stream(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.streams.clone().acquire_owned().await
    }

    /// Sends `request` on a stream, which is free again when the answer was read or given up.
    pub(super) async fn send(
        &self,
        stream: OwnedSemaphorePermit,
        request: Request<Body>,
    ) -> Result<Response<Answer>, TrySendError<Request<Body>>> {
        let response = self.sender.clone().try_send_request(request).await?;
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(response.map(|body| Answer::on_stream(body, stream)))
    }
}

/// Runs the connection, and goes by the number of streams that the service says it takes.
async fn drive<T>(
    mut connection: Connection<TokioIo<T>, Body, TokioExecutor>,
    streams: Arc<Semaphore>,
) where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut allowed = STREAMS_AT_FIRST;
    let ended = poll_fn(|cx| {
        let ended = Pin::new(&mut connection).poll(cx);
        let told = connection.current_max_send_streams().min(STREAMS_MAX);
        if told > allowed {
            streams.add_permits(told - allowed);
            allowed = told;
        } else {
            // Permits in use cannot be forgotten now: the next poll tries again.
            allowed -= streams.forget_permits(allowed - told);
        }
        ended
    });
    // Requests on the connection get its error from hyper; those that wait for a stream get it from here.
    drop(ended.await);
    streams.close();
}

const KEEP_ALIVE: Duration = Duration::from_secs(20);
const HEADERS_BYTES_MAX: u32 = 64 * 1024;
/// The streams of a connection before the service has said how many it takes.
const STREAMS_AT_FIRST: usize = 100;
/// The most streams of a connection, whatever the service allows.
const STREAMS_MAX: usize = 10_000;
