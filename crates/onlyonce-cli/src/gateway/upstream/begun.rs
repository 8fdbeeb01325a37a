//! What an HTTP/2 service sends, but for one thing: it cannot disown a request that it has begun to answer.
//!
//! By REFUSED_STREAM, or by a GOAWAY that names an earlier request as the last one, a service says that it has not
//! processed a request, and will not. After an interim answer to it (103 Early Hints) that is not so: the service has
//! begun. hyper does not tell of interim answers, so these two words are changed here, below it: REFUSED_STREAM to CANCEL,
//! and the last request of a GOAWAY to the last one that has any answer.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose frames are followed on their way to hyper.
#[derive(Debug)]
pub(super) struct Begun<T> {
    io: T,
    frames: Frames,
}

impl<T> Begun<T> {
    pub(super) fn new(io: T) -> Self {
        Self { io, frames: Frames::default() }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Begun<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        this.frames.follow(&mut buf.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Begun<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }
}

/// Where in the frames of the service the next byte stands, and which streams have an answer.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; HEAD_BYTES],
    /// How much of the head has come.
    head_bytes: usize,
    /// How much of the payload has come.
    payload_bytes: usize,
    /// The streams that have the head of an answer, perhaps an interim one, and nothing after it.
    begun: BTreeSet<u32>,
    /// Every stream up to this one counts as begun.
    begun_up_to: u32,
    last_begun: u32,
}

impl Frames {
    fn follow(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            if self.head_bytes < HEAD_BYTES {
                let taken = bytes.len().min(HEAD_BYTES - self.head_bytes);
                self.head[self.head_bytes..][..taken].copy_from_slice(&bytes[..taken]);
                self.head_bytes += taken;
                bytes = &mut bytes[taken..];
                if self.head_bytes == HEAD_BYTES {
                    self.note_head();
                }
            }
            let left = self.length() - self.payload_bytes;
            if self.head_bytes == HEAD_BYTES {
                let taken = bytes.len().min(left);
                self.correct(&mut bytes[..taken]);
                self.payload_bytes += taken;
                bytes = &mut bytes[taken..];
                if taken == left {
                    (self.head_bytes, self.payload_bytes) = (0, 0);
                }
            }
        }
    }

    fn note_head(&mut self) {
        let stream = self.stream();
        match self.kind() {
            HEADERS if self.head[4] & END_STREAM == 0 => {
                self.last_begun = self.last_begun.max(stream);
                self.begun.insert(stream);
                if self.begun.len() > BEGUN_MAX {
                    // Streams that were reset on this side stay; of the oldest it is forgotten that others have not begun.
                    self.begun_up_to =
                        self.begun.pop_first().map_or(0, |first| first.max(self.begun_up_to));
                }
            }
            // The answer is there, or its body has begun: hyper has told of it.
            HEADERS | DATA => {
                self.last_begun = self.last_begun.max(stream);
                self.begun.remove(&stream);
            }
            _ => {}
        }
    }

    /// Corrects what has come of the payload of a frame.
    fn correct(&mut self, payload: &mut [u8]) {
        let at = self.payload_bytes;
        match self.kind() {
            RST_STREAM if self.has_begun() => {
                // The code is a number of four bytes, and all that are known have only the last one.
                let last = payload.get_mut(RST_CODE_END.wrapping_sub(at));
                if let Some(code) = last.filter(|code| **code == REFUSED_STREAM) {
                    *code = CANCEL;
                }
            }
            GO_AWAY if self.last_begun > 0 && at < LAST_STREAM_BYTES => match payload {
                [a, b, c, d, ..] if at == 0 => {
                    let last = u32::from_be_bytes([*a, *b, *c, *d]) & STREAM_MAX;
                    [*a, *b, *c, *d] = last.max(self.last_begun).to_be_bytes();
                }
                // In pieces: then no request is disowned.
                pieces => {
                    let all = &STREAM_MAX.to_be_bytes()[at..];
                    pieces.iter_mut().zip(all).for_each(|(byte, all)| *byte = *all);
                }
            },
            _ => {}
        }
    }

    fn has_begun(&self) -> bool {
        let stream = self.stream();
        stream <= self.begun_up_to || self.begun.contains(&stream)
    }

    fn length(&self) -> usize {
        let [a, b, c, ..] = self.head;
        u32::from_be_bytes([0, a, b, c]) as usize
    }

    fn kind(&self) -> u8 {
        self.head[3]
    }

    fn stream(&self) -> u32 {
        let [.., a, b, c, d] = self.head;
        u32::from_be_bytes([a, b, c, d]) & STREAM_MAX
    }
}

// Frames and codes: RFC 9113 sections 6 and 7.
const HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const REFUSED_STREAM: u8 = 7;
const CANCEL: u8 = 8;
/// Where the last byte of the code stands in RST_STREAM.
const RST_CODE_END: usize = 3;
/// The number of a stream is the beginning of GOAWAY; its first bit means nothing.
const LAST_STREAM_BYTES: usize = 4;
const STREAM_MAX: u32 = u32::MAX >> 1;
/// More than there can be streams at once.
const BEGUN_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        [&head, payload].concat()
    }

    /// What comes of the frames, in pieces of so many bytes.
    fn followed(frames: &[Vec<u8>], piece: usize) -> Vec<u8> {
        let mut bytes = frames.concat();
        let mut follower = Frames::default();
        bytes.chunks_mut(piece).for_each(|piece| follower.follow(piece));
        bytes
    }

    fn reset(stream: u32, code: u8) -> Vec<u8> {
        frame(RST_STREAM, 0, stream, &[0, 0, 0, code])
    }

    fn go_away(last: u32) -> Vec<u8> {
        frame(GO_AWAY, 0, 0, &[&last.to_be_bytes()[..], &[0, 0, 0, 0], b"bye"].concat())
    }

    // threat K30
    #[test]
    fn only_a_stream_that_has_begun_to_be_answered_cannot_be_refused() {
        let hints = |stream| frame(HEADERS, 4, stream, b"x");
        let before = [hints(3), reset(1, 7), reset(3, 7), hints(5), reset(5, 2)];
        let after = [hints(3), reset(1, 7), reset(3, 8), hints(5), reset(5, 2)];
        for piece in 1..40 {
            assert_eq!(followed(&before, piece), after.concat(), "{piece}");
        }
    }

    // threat K30
    #[test]
    fn a_go_away_disowns_no_stream_that_has_begun_to_be_answered() {
        let hints = frame(HEADERS, 4, 5, b"hints");
        let all = [hints.clone(), go_away(3), frame(DATA, 0, 5, b"x"), go_away(9)];
        let whole = [hints.clone(), go_away(5), frame(DATA, 0, 5, b"x"), go_away(9)];
        assert_eq!(followed(&all, 1_000), whole.concat());
        let in_pieces = followed(&[hints.clone(), go_away(3)], 2);
        let last = in_pieces[hints.len() + HEAD_BYTES..][..4].try_into().unwrap();
        assert!(u32::from_be_bytes(last) >= 5, "{last:?}");
        assert_eq!(followed(&[go_away(0)], 1), go_away(0), "nothing has begun");
    }

    #[test]
    fn streams_that_never_end_are_forgotten_on_the_safe_side() {
        let mut frames = Frames::default();
        for n in 0..2 * BEGUN_MAX as u32 {
            frames.follow(&mut frame(HEADERS, 4, 2 * n + 1, b""));
        }
        assert!(frames.begun.len() <= BEGUN_MAX);
        let mut refused = reset(1, 7);
        frames.follow(&mut refused);
        assert_eq!(refused, reset(1, 8));
    }
}
