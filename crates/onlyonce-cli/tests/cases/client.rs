//! A client that sends exactly these bytes, and nothing by itself.

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::answer::Answer;
use crate::wire::Wire;
use crate::within;

/// A request, field by field.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    target: String,
    lines: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    framing: Framing,
    trailers: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Framing {
    None,
    Length,
    Chunked(usize),
}

impl Ask {
    /// `POST /t` with a JSON body.
    pub(crate) fn post(body: impl Into<Vec<u8>>) -> Self {
        let ask = Self::bare("POST", "/t").media("application/json");
        Self { body: body.into(), framing: Framing::Length, ..ask }
    }

    /// `POST /t` whose `Host` is still to be said.
    pub(crate) fn without_host(body: impl Into<Vec<u8>>) -> Self {
        let mut ask = Self::post(body);
        ask.lines.retain(|(name, _)| name != "Host");
        ask
    }

    /// No body, and no field but `Host`.
    pub(crate) fn bare(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            lines: vec![("Host".to_owned(), HOST.into())],
            body: Vec::new(),
            framing: Framing::None,
            trailers: String::new(),
        }
    }

    pub(crate) fn to(self, target: &str) -> Self {
        Self { target: target.to_owned(), ..self }
    }

    pub(crate) fn method(self, method: &str) -> Self {
        Self { method: method.to_owned(), ..self }
    }

    /// `K:x`.
    pub(crate) fn key(self, value: impl AsRef<[u8]>) -> Self {
        self.header("Idempotency-Key", value)
    }

    /// One more line, these very bytes.
    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.lines.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Another media type.
    pub(crate) fn media(mut self, media: &str) -> Self {
        self.lines.retain(|(name, _)| name != "Content-Type");
        self.header("Content-Type", media)
    }

    /// Another value for a line that is there.
    pub(crate) fn replaced(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    /// One line less.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.lines.retain(|(other, _)| other != name);
        self
    }

    /// Another body.
    pub(crate) fn saying(self, body: &str) -> Self {
        Self { body: body.into(), ..self }
    }

    /// From this tenant.
    pub(crate) fn tenant(self, name: &str) -> Self {
        self.header("Authorization", format!("Bearer tok_{name}"))
    }

    /// In chunks of this size, whatever it divides.
    pub(crate) fn chunked(self, size: usize) -> Self {
        Self { framing: Framing::Chunked(size), ..self }
    }

    /// With a trailer, chunked.
    pub(crate) fn trailer(self, name: &str, value: &str) -> Self {
        let trailers = format!("{}{name}: {value}\r\n", self.trailers);
        Self { trailers, ..self }.chunked(7)
    }

    /// All that is sent.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        match self.framing {
            Framing::None | Framing::Length => bytes.extend(&self.body),
            Framing::Chunked(size) => {
                for chunk in self.body.chunks(size) {
                    bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(format!("0\r\n{}\r\n", self.trailers).bytes());
            }
        }
        bytes
    }

    /// Up to the empty line.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        for (name, value) in &self.lines {
            head.extend(name.bytes());
            head.extend(b": ");
            head.extend(value);
            head.extend(b"\r\n");
        }
        head.extend(match self.framing {
            Framing::None => Vec::new(),
            Framing::Length => format!("Content-Length: {}\r\n", self.body.len()).into_bytes(),
            Framing::Chunked(_) => b"Transfer-Encoding: chunked\r\n".to_vec(),
        });
        head.extend(b"\r\n");
        head
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

/// One connection of the client.
#[derive(Debug)]
pub(crate) struct Connection(pub(crate) Wire);

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(address)).await;
        Self(Wire::new(stream.expect("the subject listens")))
    }

    /// Sends all of `ask` and reads the whole answer.
    pub(crate) async fn send(&mut self, ask: &Ask) -> io::Result<Answer> {
        self.0.write(&ask.bytes()).await?;
        self.answer(ask).await
    }

    /// The next answer, which is to `ask`.
    pub(crate) async fn answer(&mut self, ask: &Ask) -> io::Result<Answer> {
        within("an answer", self.read(ask)).await
    }

    async fn read(&mut self, ask: &Ask) -> io::Result<Answer> {
        let (early, status, headers) = self.head().await?;
        let lengths = headers.get_all("content-length").iter().count();
        let codings = headers.get_all("transfer-encoding").iter().count();
        assert!(lengths + codings <= 1, "one framing: {headers:?}");
        let has_no_body = ask.method == "HEAD" || matches!(status, 204 | 304);
        let (body, trailers) = match has_no_body {
            true => Default::default(),
            false => match self.0.body(&headers).await? {
                Some(body) => body,
                None => (self.0.rest().await?, HeaderMap::new()),
            },
        };
        Ok(Answer { status, headers, body, trailers, early })
    }

    /// The statuses of 1xx answers, then status and fields of the real one.
    pub(crate) async fn head(&mut self) -> io::Result<(Vec<u16>, u16, HeaderMap)> {
        let mut early = Vec::new();
        loop {
            let head = self.0.head().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let status = head.first.split(' ').nth(1).and_then(|status| status.parse().ok());
            match status.expect("a status line") {
                status @ 100..200 => early.push(status),
                status => return Ok((early, status, head.headers)),
            }
        }
    }
}

/// Sends `ask` over HTTP/2 with prior knowledge, on a connection of its own.
pub(crate) async fn send_http2(address: SocketAddr, ask: &Ask) -> Answer {
    Http2::open(address).await.send(ask.clone()).await
}

/// One HTTP/2 connection of the client. It ends when all of its clones are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Http2(SendRequest<Full<Bytes>>);

impl Http2 {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = within("a connection", TcpStream::connect(address)).await;
        let io = TokioIo::new(stream.expect("the subject listens"));
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    pub(crate) async fn send(mut self, ask: Ask) -> Answer {
        let mut request = Request::builder().method(ask.method.as_str());
        request = request.uri(format!("http://{HOST}{}", ask.target));
        for (name, value) in ask.lines.iter().filter(|(name, _)| name != "Host") {
            request = request.header(name, value.as_slice());
        }
        let body = Full::new(Bytes::from(ask.body));
        let sending = self.0.send_request(request.body(body).unwrap());
        let response = within("an answer over HTTP/2", sending).await.unwrap();
        let (head, body) = response.into_parts();
        let collected = within("its body", body.collect()).await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: collected.to_bytes(),
            trailers,
            early: Vec::new(),
        }
    }
}

/// Ports do not count, so that a restart changes nothing.
const HOST: &str = "api.test";
