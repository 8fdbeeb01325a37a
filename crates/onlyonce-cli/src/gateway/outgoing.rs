//! Answers on their way out: how many bytes are held for clients that are slow to read them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Response, Version};
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
    /// A streamed answer needs none: it is read from the service as its client reads, but for a buffer.
    pub(super) fn held(
        &self,
        answer: Response<Body>,
        line: &Line,
        version: Version,
    ) -> Response<Body> {
        let bytes = answer.body().held_bytes();
        let is_small = bytes <= SMALL_BYTES_MAX;
        // HTTP/1 has one answer at a time on a connection, and a full socket shows that nobody reads it.
        if bytes == 0 || (is_small && version < Version::HTTP_2) {
            return answer;
        }
        let room = match is_small {
            true => None,
            false => self.room(bytes.min(ANSWERS_BYTES_MAX), line),
        };
        if !is_small && room.is_none() {
            return problem::answer_not_sent(&Policy::default());
        }
        let room = Some((room, line.hold(bytes)));
        answer.map(|body| Body::new(Roomed { body, room }))
    }
}

impl Outgoing {
    /// Room for a large answer. One connection has a share only, but always room for one answer.
    fn room(&self, bytes: usize, line: &Line) -> Option<OwnedSemaphorePermit> {
        let held = line.unsent_bytes();
        if held > 0 && held + bytes > CONNECTION_BYTES_MAX {
            return None;
        }
        self.0.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }
}

type Room = (Option<OwnedSemaphorePermit>, Unsent);

/// A kept answer, and its room until its bytes are handed over.
struct Roomed {
    body: Body,
    room: Option<Room>,
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
    _room: Room,
}

impl Held {
    fn bytes(bytes: Bytes, room: Room) -> Bytes {
        Bytes::from_owner(Self { bytes, _room: room })
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An answer of this size needs no room: whoever holds all of it must not hold up others.
const SMALL_BYTES_MAX: usize = 16 * 1024;
/// The share of one connection.
const CONNECTION_BYTES_MAX: usize = 32 << 20;
/// The kept answers that are held at once for clients to read them.
const ANSWERS_BYTES_MAX: usize = 64 << 20;
