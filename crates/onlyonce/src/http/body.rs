//! One body type for requests and answers: kept bytes, or a stream.

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::StreamExt;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;

use crate::store::BoxError;

/// The body of a request to the inner service, and of an answer of the layer.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Kept {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    Streamed(UnsyncBoxBody<Bytes, BoxError>),
    Fed(mpsc::Receiver<Fed>),
    /// A feed that has ended.
    Ended,
}

/// A message of the operation's task: a frame, or the end. A feed that closes without `End` was broken off, and must
/// not pass for a whole body.
#[derive(Debug)]
pub(super) enum Fed {
    Frame(Frame<Bytes>),
    Broken(BoxError),
    End,
}

impl Body {
    /// A body of these bytes and trailers.
    pub(crate) fn kept(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self(Kind::Kept { bytes, trailers })
    }

    /// Streams `body` as it arrives.
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut body = Some(body);
        // A body of this type needs no box around it.
        if let Some(body) = (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return body.take().unwrap_or_default();
        }
        let body = body.expect("it was not taken");
        Self(Kind::Streamed(body.map_err(Into::into).boxed_unsync()))
    }

    /// How many bytes of the body are held in memory; 0 for one that streams.
    pub fn held_bytes(&self) -> usize {
        match &self.0 {
            Kind::Kept { bytes, .. } => bytes.len(),
            Kind::Streamed(_) | Kind::Fed(_) | Kind::Ended => 0,
        }
    }

    /// The bytes of a body that is held in memory whole.
    pub fn held(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Kept { bytes, .. } => Some(bytes),
            Kind::Streamed(_) | Kind::Fed(_) | Kind::Ended => None,
        }
    }

    /// The part of a body that was read already, then the error that ended it or the rest of it.
    pub(super) fn resumed<B>(read: [Bytes; 2], error: Option<BoxError>, rest: Pin<Box<B>>) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let read = read.into_iter().filter(|bytes| !bytes.is_empty());
        let read = read.map(|bytes| Ok(Frame::data(bytes))).chain(error.map(Err));
        let rest = futures_util::stream::unfold(rest, |mut rest| async {
            let frame = rest.frame().await?;
            Some((frame.map_err(Into::into), rest))
        });
        let frames = futures_util::stream::iter(read.collect::<Vec<_>>()).chain(rest);
        Self(Kind::Streamed(StreamBody::new(frames).boxed_unsync()))
    }

    /// A body that the operation's task feeds.
    pub(super) fn fed(frames: mpsc::Receiver<Fed>) -> Self {
        Self(Kind::Fed(frames))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Kept { bytes, .. } if !bytes.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            Kind::Kept { trailers, .. } => {
                Poll::Ready(trailers.take().map(|t| Ok(Frame::trailers(t))))
            }
            Kind::Streamed(body) => Pin::new(body).poll_frame(cx),
            Kind::Fed(frames) => {
                let frame = match ready!(frames.poll_recv(cx)) {
                    Some(Fed::Frame(frame)) => return Poll::Ready(Some(Ok(frame))),
                    Some(Fed::Broken(error)) => Some(Err(error)),
                    Some(Fed::End) => None,
                    None => Some(Err("the answer was broken off".into())),
                };
                self.0 = Kind::Ended;
                Poll::Ready(frame)
            }
            Kind::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Kept { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
            Kind::Streamed(body) => body.is_end_stream(),
            Kind::Fed(_) => false,
            Kind::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Kept { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            Kind::Streamed(body) => body.size_hint(),
            Kind::Fed(_) => SizeHint::default(),
            Kind::Ended => SizeHint::with_exact(0),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::kept(Bytes::new(), None)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::kept(bytes, None)
    }
}
