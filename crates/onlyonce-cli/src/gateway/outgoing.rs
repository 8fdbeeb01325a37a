//! Answers on their way out: how many bytes are held for clients that are slow to read them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Response, Version};
use http_body::Body as _;
use hyper::body::{Bytes, Frame, SizeHint};
use onlyonce::Policy;
use onlyonce::http::{Body, problem};
use onlyonce::store::BoxError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connections::{ConnectionState, InFlight, Unsent};

/// The room for answers of the whole process.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    large: Arc<Semaphore>,
    /// Of its own, so that whoever fills the other with large answers does not hold up small ones.
    small: Arc<Semaphore>,
}

impl Outgoing {
    pub(super) fn new() -> Self {
        let room = || Arc::new(Semaphore::new(ANSWERS_BYTES_MAX));
        Self { large: room(), small: room() }
    }

    /// The answer, which takes room until its last byte was written to the connection. Where there is no
    /// room it is dropped: what was executed is stored, and a retry gets it.
    ///
    /// A streamed answer needs none: it is read from the service as its client reads, but for a buffer. Its request is at
    /// work until it ends.
    pub(super) fn held(
        &self,
        answer: Response<Body>,
        policy: &Policy,
        in_flight: InFlight,
        version: Version,
    ) -> Response<Body> {
        let (bytes, state) = (answer.body().held_bytes(), in_flight.connection());
        // HTTP/1 has one answer at a time on a connection, and a full socket shows that nobody reads it.
        let is_http1 = version < Version::HTTP_2;
        match bytes {
            _ if answer.body().is_end_stream() => answer,
            0 => answer.map(|body| Body::new(Streamed::new(body, in_flight, !is_http1))),
            1..=SMALL_BYTES_MAX if is_http1 => answer,
            _ => match self.room(bytes.min(ANSWERS_BYTES_MAX), state) {
                Some(room) => {
                    let room = Some((room, state.hold(bytes)));
                    answer.map(|body| Body::new(Roomed { body, room }))
                }
                None => problem::answer_not_sent(policy),
            },
        }
    }

    /// Of the room for large answers one connection has a share only, but always room for one answer. Its small
    /// ones are bounded by the streams of a connection.
    fn room(&self, bytes: usize, state: &ConnectionState) -> Option<OwnedSemaphorePermit> {
        let (room, share) = match bytes {
            ..=SMALL_BYTES_MAX => (&self.small, ANSWERS_BYTES_MAX),
            _ => (&self.large, CONNECTION_BYTES_MAX),
        };
        let held = state.unsent_bytes();
        if held > 0 && held + bytes > share {
            return None;
        }
        room.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }
}

/// A streamed answer. On an HTTP/2 connection it tells when its client is awaited: whenever hyper does not ask for
/// the next frame, because the client has opened no window for it.
struct Streamed {
    body: Body,
    in_flight: InFlight,
    tells: bool,
    unsent: Option<Unsent>,
}

impl Streamed {
    fn new(body: Body, in_flight: InFlight, tells: bool) -> Self {
        let unsent = tells.then(|| in_flight.connection().hold(STREAM_BYTES));
        Self { body, in_flight, tells, unsent }
    }
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.unsent = match frame {
            // The service is awaited.
            Poll::Pending => None,
            Poll::Ready(_) if !self.tells => None,
            Poll::Ready(_) => {
                let unsent = self.unsent.take();
                Some(unsent.unwrap_or_else(|| self.in_flight.connection().hold(STREAM_BYTES)))
            }
        };
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

type Room = (OwnedSemaphorePermit, Unsent);

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

const SMALL_BYTES_MAX: usize = 16 * 1024;
/// The share of one connection in the room for large answers.
const CONNECTION_BYTES_MAX: usize = 32 << 20;
/// The large answers that are held at once for clients to read them; and as much of small ones.
const ANSWERS_BYTES_MAX: usize = 64 << 20;
/// What a stream counts for while its client is awaited. What is buffered of it is bounded per stream.
const STREAM_BYTES: usize = 1;
