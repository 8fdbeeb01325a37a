//! Answers on their way out: how many bytes are held for clients that are slow to read them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use hyper::body::{Bytes, Frame, SizeHint};
use onlyonce::Policy;
use onlyonce::http::{Body, problem};
use onlyonce::store::BoxError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::wire::{Line, Unsent};

/// The room for answers of the whole process.
#[derive(Clone, Debug)]
pub(super) struct Outgoing(Arc<Semaphore>);

impl Outgoing {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ANSWERS_BYTES_MAX)))
    }

    /// The answer, which takes room until its last byte was written to the connection. Where there is no
    /// room it is dropped: what was executed is stored, and a retry gets it.
    ///
    /// A streamed answer needs none: it is read from the service only as fast as its client reads.
    pub(super) fn held(&self, answer: Response<Body>, line: &Line) -> Response<Body> {
        let bytes = answer.body().held_bytes();
        if bytes == 0 {
            return answer;
        }
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(room) = self.0.clone().try_acquire_many_owned(permits) else {
            return problem::answer_not_sent(&Policy::default());
        };
        let room = Some((room, line.hold()));
        answer.map(|body| Body::new(Roomed { body, room }))
    }
}

/// A kept answer, and its room until its bytes are handed over.
struct Roomed {
    body: Body,
    room: Option<(OwnedSemaphorePermit, Unsent)>,
}

impl http_body::Body for Roomed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match (frame, self.room.take()) {
            (Some(Ok(frame)), Some(room)) => {
                Some(Ok(frame.map_data(|bytes| Held::bytes(bytes, room))))
            }
            (frame, _) => frame,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// The length goes into the head.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes that give their room back when the last of them is written: hyper and the HTTP/2 queue drop them then.
struct Held {
    bytes: Bytes,
    _room: (OwnedSemaphorePermit, Unsent),
}

impl Held {
    fn bytes(bytes: Bytes, room: (OwnedSemaphorePermit, Unsent)) -> Bytes {
        Bytes::from_owner(Self { bytes, _room: room })
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The kept answers that are held at once for clients to read them.
const ANSWERS_BYTES_MAX: usize = 64 << 20;
