//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use tokio::sync::OwnedSemaphorePermit;

/// The body of an answer, with the HTTP/2 stream that it occupies.
#[derive(Debug)]
pub(in super::super) struct Answer {
    body: Incoming,
    _stream: Option<OwnedSemaphorePermit>,
}

impl Answer {
    pub(super) fn on_stream(body: Incoming, stream: OwnedSemaphorePermit) -> Self {
        Self { body, _stream: Some(stream) }
    }
}

impl From<Incoming> for Answer {
    fn from(body: Incoming) -> Self {
        Self { body, _stream: None }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
