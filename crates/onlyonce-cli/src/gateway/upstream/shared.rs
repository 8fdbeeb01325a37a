//! An HTTP/2 connection, which many requests use at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::Answer;
use super::begun::Begun;
use super::streams::Streams;

/// An HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Shared {
    sender: SendRequest<Body>,
    streams: Streams,
    /// When the head of an answer arrived last, or the connection was made.
    used_at: Mutex<Instant>,
    has_answered: AtomicBool,
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
            .initial_max_send_streams(0)
            .max_header_list_size(HEADERS_BYTES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(Begun::new(stream))).await?;
        let streams = Streams::run(connection).await?;
        let (used_at, has_answered) = (Mutex::new(Instant::now()), AtomicBool::new(false));
        Ok(Self { sender, streams, used_at, has_answered })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether it is open and an answer arrived on it within `idle_max`.
    pub(super) fn is_usable(&self, idle_max: Duration) -> bool {
        let used_at = *self.used_at.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_closed() && used_at.elapsed() < idle_max
    }

    /// Whether there was an answer on it.
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Waits for a stream; nothing once the connection has ended.
    pub(super) async fn stream(&self) -> Option<OwnedSemaphorePermit> {
        self.streams.acquire().await
    }

    /// Sends `request` on a stream, which is free again when the answer was read or given up.
    pub(super) async fn send(
        &self,
        stream: OwnedSemaphorePermit,
        request: Request<Body>,
    ) -> Result<Response<Answer>, TrySendError<Request<Body>>> {
        let response = self.sender.clone().try_send_request(request).await?;
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.has_answered.store(true, Ordering::Relaxed);
        Ok(Answer::of(response, Some(stream)))
    }
}

const KEEP_ALIVE: Duration = Duration::from_secs(20);
const HEADERS_BYTES_MAX: u32 = 64 * 1024;
