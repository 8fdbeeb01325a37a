//! What may come in on an HTTP/1 connection, byte by byte.
//!
//! Two readers that disagree on where a request ends can be made to see different requests. hyper
//! repairs some of what is ambiguous; a gateway must refuse it. This reader sits below hyper, follows the
//! same bytes, and where a head leaves a doubt it answers 400 itself and ends the connection: hyper
//! never sees the rest.

use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use http_body_util::{BodyExt, Collected};
use onlyonce::Policy;
use onlyonce::http::problem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connections::{ConnectionState, Slot};

/// A connection whose heads are looked at before hyper reads them.
#[derive(Debug)]
pub(super) struct Watched<T> {
    io: T,
    scanner: Scanner,
    state: ConnectionState,
    /// Its slot among the connections of the listener; an upgraded connection keeps it.
    _slot: Slot,
    /// How much of the preface of HTTP/2 was read.
    preface_bytes: usize,
    /// Something was written and not flushed: an answer is on its way.
    is_answering: bool,
    is_refused: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Watched<T> {
    pub(super) fn new(io: T, slot: Slot) -> Self {
        Self {
            io,
            scanner: Scanner::default(),
            state: slot.state().clone(),
            _slot: slot,
            preface_bytes: 0,
            is_answering: false,
            is_refused: false,
        }
    }

    /// Follows the first bytes of a connection until they tell its version.
    fn note_version(&mut self, bytes: &[u8]) {
        let left = &PREFACE[self.preface_bytes..];
        let same = bytes.iter().zip(left).take_while(|(byte, wanted)| byte == wanted).count();
        self.preface_bytes += same;
        let is_http2 = same == left.len();
        if same < bytes.len() || is_http2 {
            self.state.note_version(is_http2);
        }
    }

    /// Answers 400, unless the client would take it for the answer to an earlier request, and reads away
    /// what the client has sent, because unread bytes would make the system take the answer back.
    fn refuse(&mut self, cx: &mut Context<'_>) {
        self.is_refused = true;
        let is_idle = self.state.is_idle() && !self.is_answering;
        if is_idle {
            // So few bytes fit, or the peer is not reading anyway.
            let _ = Pin::new(&mut self.io).poll_write(cx, &REFUSAL);
            let _ = Pin::new(&mut self.io).poll_flush(cx);
        }
        let _ = Pin::new(&mut self.io).poll_shutdown(cx);
        let mut away = [0; 4096];
        for _ in 0..READS_AWAY_MAX {
            let mut away = ReadBuf::new(&mut away);
            let read = Pin::new(&mut self.io).poll_read(cx, &mut away);
            if !matches!(read, Poll::Ready(Ok(()))) || away.filled().is_empty() {
                return;
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_refused {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        if this.state.is_upgraded() {
            return Poll::Ready(Ok(()));
        }
        let read = &buf.filled()[before..];
        if !this.state.has_version() {
            this.note_version(read);
        }
        if this.scanner.has_doubt(read) {
            buf.set_filled(before);
            this.refuse(cx);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_answering = true;
        let written = Pin::new(&mut this.io).poll_write(cx, buf);
        this.state.wrote(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        this.state.flushed(&flushed);
        ready!(flushed)?;
        this.is_answering = false;
        Poll::Ready(Ok(()))
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
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_answering = true;
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, bufs);
        this.state.wrote(written)
    }
}

/// The answer to what cannot be read in one way only, as bytes: hyper never sees the request.
static REFUSAL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let why = "Two servers could disagree on where this request ends.";
    let (head, body) = problem::request_ambiguous(&Policy::default(), why).into_parts();
    let body = body.collect().now_or_never().and_then(Result::ok);
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {}\r\nconnection: close\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        bytes.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    bytes.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
    bytes.extend(body);
    bytes
});
/// What an HTTP/2 connection begins with: RFC 9113 section 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How much of what a refused client has sent is read away, in pieces of 4 KiB.
const READS_AWAY_MAX: usize = 64;

/// Where in the stream of requests the next byte stands.
#[derive(Debug)]
enum Place {
    /// In a head; its lines so far.
    Head(Head),
    /// In a body of so many more bytes.
    Body(u64),
    /// In the line with the size of a chunk.
    ChunkSize(Vec<u8>),
    /// In a chunk of so many more bytes, its line end included.
    Chunk(u64),
    /// In the lines after the last chunk.
    Trailers { begun: Vec<u8> },
    /// HTTP/2, or refused: no more is looked at.
    Elsewhere,
}

/// A head as far as it was read.
#[derive(Debug, Default)]
struct Head {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    lines: usize,
    bytes: usize,
    content_lengths: usize,
    length: u64,
    is_chunked: bool,
}

/// Follows the requests of one connection.
#[derive(Debug)]
struct Scanner(Place);

impl Default for Scanner {
    fn default() -> Self {
        Self(Place::Head(Head::default()))
    }
}

impl Scanner {
    /// Whether there is a doubt in `bytes`, which follow those of the last call.
    fn has_doubt(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match self.step(bytes) {
                Some(taken) => bytes = &bytes[taken..],
                None => return true,
            }
        }
        false
    }

    /// Takes some of `bytes`; how many, or `None` for a doubt.
    fn step(&mut self, bytes: &[u8]) -> Option<usize> {
        match &mut self.0 {
            Place::Elsewhere => Some(bytes.len()),
            Place::Body(left) | Place::Chunk(left) => {
                let taken = (*left).min(bytes.len() as u64);
                *left -= taken;
                if *left == 0 {
                    self.0 = match self.0 {
                        Place::Chunk(_) => Place::ChunkSize(Vec::new()),
                        _ => Place::Head(Head::default()),
                    };
                }
                Some(taken as usize)
            }
            Place::Head(head) => {
                let mut begun = std::mem::take(&mut head.begun);
                let (taken, line) = take_line(&mut begun, bytes)?;
                match line {
                    None => head.begun = begun,
                    Some(line) => {
                        if let Some(next) = head.end_line(line)? {
                            self.0 = next;
                        }
                    }
                }
                Some(taken)
            }
            Place::ChunkSize(begun) => {
                let (taken, line) = take_line(begun, bytes)?;
                if let Some(line) = line {
                    self.0 = after_chunk_size(line)?;
                }
                Some(taken)
            }
            Place::Trailers { begun } => {
                let (taken, line) = take_line(begun, bytes)?;
                match line {
                    None => {}
                    Some(b"") => self.0 = Place::Head(Head::default()),
                    Some(_) => begun.clear(),
                }
                Some(taken)
            }
        }
    }
}

/// Where the heads of `stream` begin, and the place of the first doubt or the end: for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(super) fn heads(stream: &[u8]) -> (Vec<usize>, usize) {
    let (mut scanner, mut starts, mut at) = (Scanner::default(), vec![0], 0);
    while at < stream.len() {
        let Some(taken) = scanner.step(&stream[at..]) else { break };
        at += taken;
        if matches!(&scanner.0, Place::Head(head) if head.lines == 0 && head.begun.is_empty()) {
            starts.push(at);
        }
    }
    (starts, at)
}

/// Whether a stream that comes in pieces of so many bytes has a doubt: for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub(super) fn has_doubt(stream: &[u8], piece: usize) -> bool {
    let mut scanner = Scanner::default();
    stream.chunks(piece).any(|piece| scanner.has_doubt(piece))
}

/// How many of `bytes` belong to the line that `begun` holds the beginning of, and the whole line if it
/// ends there. A line ends with CR LF; either alone is a doubt, and so is a line without end. Only a line
/// that comes in pieces is copied.
fn take_line<'a>(begun: &'a mut Vec<u8>, bytes: &'a [u8]) -> Option<(usize, Option<&'a [u8]>)> {
    let end = memchr::memchr(b'\n', bytes);
    let taken = end.map_or(bytes.len(), |end| end + 1);
    let line = if begun.is_empty() && end.is_some() {
        &bytes[..taken]
    } else {
        begun.extend_from_slice(&bytes[..taken]);
        begun.as_slice()
    };
    if line.len() > LINE_BYTES_MAX {
        return None;
    }
    if end.is_none() {
        return Some((taken, None));
    }
    let line = line.strip_suffix(b"\r\n")?;
    memchr::memchr(b'\r', line).is_none().then_some((taken, Some(line)))
}

impl Head {
    /// Judges the line that ended: `None` is a doubt, `Some(None)` goes on with this head.
    fn end_line(&mut self, line: &[u8]) -> Option<Option<Place>> {
        self.bytes += line.len() + 2;
        if self.bytes > HEAD_BYTES_MAX {
            return None;
        }
        self.lines += 1;
        match line {
            b"PRI * HTTP/2.0" if self.lines == 1 => Some(Some(Place::Elsewhere)),
            // hyper skips empty lines before a request, and so do we.
            b"" if self.lines == 1 => {
                self.lines = 0;
                Some(None)
            }
            b"" => self.end().map(Some),
            _ if self.lines == 1 => Some(None),
            line => self.header(line).then_some(None),
        }
    }

    /// Notes a header; false is a doubt.
    fn header(&mut self, line: &[u8]) -> bool {
        // A line that begins with space continues the one before: obs-fold.
        if line[0] == b' ' || line[0] == b'\t' || has_control(line) {
            return false;
        }
        let Some(colon) = memchr::memchr(b':', line) else {
            return false;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            return self.content_length(value);
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // One coding, and that one: anything else is read differently by different readers.
            let is_only = !self.is_chunked && value.eq_ignore_ascii_case(b"chunked");
            self.is_chunked = true;
            return is_only;
        }
        true
    }

    fn content_length(&mut self, value: &[u8]) -> bool {
        self.content_lengths += 1;
        let is_number = is_plain_length(value);
        let length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        self.length = length.unwrap_or(0);
        is_number && length.is_some() && self.content_lengths == 1
    }

    fn end(&self) -> Option<Place> {
        match (self.is_chunked, self.content_lengths) {
            (true, 0) => Some(Place::ChunkSize(Vec::new())),
            (true, _) => None,
            (false, _) if self.length > 0 => Some(Place::Body(self.length)),
            (false, _) => Some(Place::Head(Self::default())),
        }
    }
}

/// Whether a length is written as everyone writes it. With zeros before it some readers take it for an octal number.
pub(super) fn is_plain_length(value: &[u8]) -> bool {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number && (value[0] != b'0' || value.len() == 1)
}

/// Looks at every byte, without an early end: the compiler then compares many bytes at once.
fn has_control(line: &[u8]) -> bool {
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    line.iter().fold(false, |found, byte| found | is_control(*byte))
}

fn after_chunk_size(line: &[u8]) -> Option<Place> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let is_hexadecimal = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_hexadecimal)?;
    match u64::from_str_radix(text, 16).ok()? {
        0 => Some(Place::Trailers { begun: Vec::new() }),
        size => Some(Place::Chunk(size.checked_add(2)?)),
    }
}

/// The longest line of a head, and the longest head.
const LINE_BYTES_MAX: usize = HEAD_BYTES_MAX;
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn doubt(stream: &[u8]) -> bool {
        let whole = Scanner::default().has_doubt(stream);
        // The same, one byte at a time.
        let mut scanner = Scanner::default();
        let split = stream.iter().any(|byte| scanner.has_doubt(&[*byte]));
        assert_eq!(whole, split, "{:?}", String::from_utf8_lossy(stream));
        whole
    }

    #[test]
    fn clean_requests_pass_one_after_the_other() {
        for stream in [
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nX: a\tb\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x01\n\n",
        ] {
            assert!(!doubt(stream.as_bytes()), "{stream}");
        }
    }

    // threat G1
    #[test]
    fn whatever_two_readers_may_read_differently_is_refused() {
        for head in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 03\r\n",
            "Content-Length: \r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding : chunked\r\nContent-Length: 3\r\n".trim_start(),
            "X: a\r\n folded\r\n",
            "X: a\nY: b\r\n",
            "X: a\rb\r\n",
            "X: a\0b\r\n",
            "X: a\x01b\r\n",
            "no colon\r\n",
        ] {
            let stream = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n");
            let refused = doubt(stream.as_bytes());
            // A name with a space before its colon is left to hyper, which refuses it.
            assert!(refused || head.starts_with("Transfer-Encoding :"), "{head:?}");
        }
    }

    #[test]
    fn a_chunk_size_that_is_none_is_refused() {
        for size in ["x", "", "-1", "0x3", "fffffffffffffffff", " 3"] {
            let stream = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n");
            assert!(doubt(stream.as_bytes()), "{size:?}");
        }
    }

    #[test]
    fn a_head_without_end_is_refused() {
        let mut stream = b"GET / HTTP/1.1\r\n".to_vec();
        stream.extend(
            b"X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n".repeat(2_000),
        );
        assert!(doubt(&stream));
    }
}
