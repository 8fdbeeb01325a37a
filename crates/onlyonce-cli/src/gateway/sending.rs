//! A request body on its way to the upstream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Bytes;
use onlyonce::http::Body;
use onlyonce::store::BoxError;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

/// A body that tells when it was sent, and breaks off if the client falls silent in the middle of it.
struct Sending {
    body: Body,
    silence: Option<Pin<Box<Sleep>>>,
    /// Dropped with the body, when it was sent to its end or given up.
    _sent: oneshot::Sender<()>,
}

/// When a body was sent, or given up.
pub(super) struct Sent(Option<oneshot::Receiver<()>>);

impl Sent {
    /// Watches `body`; one that is empty was sent already.
    pub(super) fn watch(body: Body) -> (Body, Self) {
        if body.is_end_stream() {
            return (body, Self(None));
        }
        let (sent, told) = oneshot::channel();
        (Body::new(Sending { body, silence: None, _sent: sent }), Self(Some(told)))
    }

    /// Ends `wait` after the body was sent, however long that takes.
    pub(super) async fn and(self, wait: Duration) {
        if let Some(told) = self.0 {
            // The sender says it by being dropped.
            let _ = told.await;
        }
        sleep(wait).await;
    }
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.silence = None;
            return Poll::Ready(frame);
        }
        let silence = this.silence.get_or_insert_with(|| Box::pin(sleep(SILENCE_MAX)));
        match silence.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err("the client fell silent".into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How long a client may be silent in the middle of a body.
const SILENCE_MAX: Duration = Duration::from_secs(60);
