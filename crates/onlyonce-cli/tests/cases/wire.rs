//! HTTP/1.1 by hand, so that every byte of it is the test's own.

use std::io;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection, from either end.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    read: BytesMut,
}

/// The first line of a message, and its fields.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) first: String,
    pub(crate) headers: HeaderMap,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let _ = stream.set_nodelay(true);
        Self { stream, read: BytesMut::new() }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Says that nothing more will be written; the other end may still answer.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Ends the connection by a reset, as a process does that dies.
    pub(crate) fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    /// The next head, or nothing where the connection ended before its first byte.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                let head = self.read.split_to(end + 4);
                return parse(&head[..end + 2]).map(Some);
            }
            if self.more().await? == 0 {
                return match self.read.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// The body that `headers` announce, and its trailers; `None` where they announce none.
    pub(crate) async fn body(
        &mut self,
        headers: &HeaderMap,
    ) -> io::Result<Option<(Bytes, HeaderMap)>> {
        if headers.contains_key("transfer-encoding") {
            return self.chunked().await.map(Some);
        }
        let Some(length) = headers.get("content-length") else {
            return Ok(None);
        };
        let length = length.to_str().ok().and_then(|text| text.parse().ok());
        let length = length.ok_or_else(|| io::Error::other("a bad Content-Length"))?;
        Ok(Some((self.exact(length).await?, HeaderMap::new())))
    }

    /// The next chunk; after the last one nothing.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        let size = self.line().await?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
        if size == 0 {
            return Ok(None);
        }
        let chunk = self.exact(size).await?;
        match self.exact(2).await?.as_ref() {
            b"\r\n" => Ok(Some(chunk)),
            _ => Err(io::Error::other("a chunk that does not end")),
        }
    }

    async fn chunked(&mut self) -> io::Result<(Bytes, HeaderMap)> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            body.extend_from_slice(&chunk);
        }
        let mut trailers = HeaderMap::new();
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok((body.freeze(), trailers));
            }
            let (name, value) = field(line.as_bytes())?;
            trailers.append(name, value);
        }
    }

    pub(crate) async fn exact(&mut self, length: usize) -> io::Result<Bytes> {
        while self.read.len() < length {
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.read.split_to(length).freeze())
    }

    /// Whatever comes until the other end closes.
    pub(crate) async fn rest(&mut self) -> io::Result<Bytes> {
        while self.more().await? > 0 {}
        Ok(self.read.split().freeze())
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.read, b"\r\n") {
                let line = self.read.split_to(end + 2);
                return String::from_utf8(line[..end].to_vec()).map_err(io::Error::other);
            }
            if self.more().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn more(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.read).await
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn parse(head: &[u8]) -> io::Result<Head> {
    let mut lines =
        head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let mut headers = HeaderMap::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = field(line)?;
        headers.append(name, value);
    }
    Ok(Head { first, headers })
}

fn field(line: &[u8]) -> io::Result<(HeaderName, HeaderValue)> {
    let colon = find(line, b":").ok_or_else(|| io::Error::other("a field without a colon"))?;
    let name = HeaderName::from_bytes(&line[..colon]).map_err(io::Error::other)?;
    let value =
        HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).map_err(io::Error::other)?;
    Ok((name, value))
}
