//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use onlyonce::store::BoxError;
use tokio::sync::OwnedSemaphorePermit;

use super::super::unbroken::Unbroken;

/// The body of an answer, with the HTTP/2 stream that it occupies.
#[derive(Debug)]
pub(in super::super) struct Answer {
    body: Unbroken,
    _stream: Option<OwnedSemaphorePermit>,
}

impl Answer {
    /// On a connection of its own, or on one stream of a shared one.
    pub(super) fn of(
        response: Response<Incoming>,
        stream: Option<OwnedSemaphorePermit>,
    ) -> Response<Self> {
        let version = response.version();
        response.map(|body| Self { body: Unbroken::new(body, version), _stream: stream })
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
