//! An HTTP/2 connection, which many requests use at once.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::SendRequest;
use onlyonce::http::Body;
use tokio::time::Instant;

/// An HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Shared {
    sender: SendRequest<Body>,
    /// When the head of an answer arrived last, or the connection was made.
    used_at: Mutex<Instant>,
}

impl Shared {
    pub(super) fn new(sender: SendRequest<Body>) -> Self {
        Self { sender, used_at: Mutex::new(Instant::now()) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether it is open and an answer arrived on it within `idle_max`.
    pub(super) fn is_usable(&self, idle_max: Duration) -> bool {
        let used_at = *self.used_at.lock().unwrap_or_else(PoisonError::into_inner);
        !self.is_closed() && used_at.elapsed() < idle_max
    }

    pub(super) async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let response = self.sender.clone().try_send_request(request).await?;
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(response)
    }
}
