//! How the upstream answers one execution: whole, late, broken, streamed.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use crate::gzip::gzip;
use crate::upstream::Seen;

/// One answer of the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) content: Content,
    pub(crate) gate: Option<Gate>,
    pub(crate) is_chunked: bool,
    /// Neither a length nor chunks: the connection's end is the body's.
    pub(crate) is_until_close: bool,
    pub(crate) has_hints: bool,
    pub(crate) trailers: Vec<(&'static str, &'static str)>,
    pub(crate) end: End,
}

#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// It names the execution, and a number that no other execution has.
    Counted,
    Bytes(Bytes),
    /// The body of the request.
    Echo,
    /// Compressed for whoever asked.
    Coded(&'static str),
    /// One event at once, two more when the gate opens.
    Events(Gate),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Whole,
    /// Executed, then dead before a byte of the answer.
    ResetAtOnce,
    /// Dead after this much of the body.
    ResetAfter(usize),
}

impl Reply {
    /// The default answer to a POST.
    pub(crate) fn created() -> Self {
        let reply = Self::status(201).header("Content-Type", "application/json");
        reply.header("Location", "/t/{n}").header("ETag", "\"{n}\"")
    }

    /// This status, with a body that names the execution.
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content: Content::Counted,
            gate: None,
            is_chunked: false,
            is_until_close: false,
            has_hints: false,
            trailers: Vec::new(),
            end: End::Whole,
        }
    }

    /// Executes, then resets before any byte.
    pub(crate) fn reset() -> Self {
        Self { end: End::ResetAtOnce, ..Self::created() }
    }

    /// An event stream, which goes on when `gate` opens.
    pub(crate) fn events(gate: &Gate) -> Self {
        let reply = Self::status(200).header("Content-Type", "text/event-stream");
        Self { content: Content::Events(gate.clone()), is_chunked: true, ..reply }
    }

    /// `{n}` in the value is the number of the execution.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(self, body: impl Into<Bytes>) -> Self {
        self.content(Content::Bytes(body.into()))
    }

    pub(crate) fn content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Answers when `gate` opens; the execution counts before that.
    pub(crate) fn behind(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    pub(crate) fn chunked(self) -> Self {
        Self { is_chunked: true, ..self }
    }

    pub(crate) fn until_close(self) -> Self {
        Self { is_until_close: true, ..self }
    }

    pub(crate) fn with_hints(self) -> Self {
        Self { has_hints: true, ..self }
    }

    pub(crate) fn trailer(mut self, name: &'static str, value: &'static str) -> Self {
        self.trailers.push((name, value));
        self
    }

    pub(crate) fn cut_after(self, bytes: usize) -> Self {
        Self { end: End::ResetAfter(bytes), ..self }
    }

    /// The fields of the `n`th execution's answer.
    pub(crate) fn headers(&self, n: usize, seen: &Seen) -> Vec<(String, String)> {
        let counted = |value: &String| value.replace("{n}", &n.to_string());
        let fields = self.headers.iter();
        let mut fields: Vec<_> =
            fields.map(|(name, value)| (name.clone(), counted(value))).collect();
        if self.is_coded_for(seen) {
            fields.push(("Content-Encoding".to_owned(), "gzip".to_owned()));
            fields.push(("Vary".to_owned(), "Accept-Encoding".to_owned()));
        }
        fields
    }

    /// The body of it; of an event stream, the first event.
    pub(crate) fn bytes(&self, n: usize, seen: &Seen) -> Bytes {
        match &self.content {
            Content::Counted => {
                format!("{{\"n\":{n},\"rnd\":\"{:016x}\"}}", fastrand::u64(..)).into()
            }
            Content::Bytes(bytes) => bytes.clone(),
            Content::Echo => seen.body.clone(),
            Content::Coded(text) if self.is_coded_for(seen) => gzip(text.as_bytes(), 1000).into(),
            Content::Coded(text) => Bytes::from_static(text.as_bytes()),
            Content::Events(_) => Bytes::from_static(EVENT),
        }
    }

    fn is_coded_for(&self, seen: &Seen) -> bool {
        let asked = seen.headers.get("accept-encoding");
        let asked =
            asked.is_some_and(|value| value.to_str().is_ok_and(|list| list.contains("gzip")));
        asked && matches!(self.content, Content::Coded(_))
    }
}

/// What an event stream says three times.
pub(crate) const EVENT: &[u8] = b"data: tick\n\n";

/// Closed, until the test opens it.
#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    pub(crate) async fn passed(&self) {
        let mut opened = self.0.subscribe();
        opened.wait_for(|is_open| *is_open).await.expect("the gate itself is here");
    }
}
