//! A body whose break is never taken for its end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::{Bytes, Incoming};
use onlyonce::store::BoxError;

/// A body as hyper reads it, but for one thing: hyper takes an HTTP/2 stream that was reset with NO_ERROR for one
/// that ended, whatever is missing of it.
#[derive(Debug)]
pub(super) struct Unbroken {
    body: Incoming,
    is_http2: bool,
}

impl Unbroken {
    pub(super) fn new(body: Incoming, version: Version) -> Self {
        Self { body, is_http2: version == Version::HTTP_2 }
    }
}

impl Body for Unbroken {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match frame {
            None if self.is_http2 && !self.body.is_end_stream() => {
                Some(Err("the stream was reset before the end of its body".into()))
            }
            frame => frame.map(|frame| frame.map_err(Into::into)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
