//! The upstream `U`: counts what it executes, remembers what it saw, and answers as the test plans.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::reply::{Content, EVENT, End, Reply};
use crate::wire::{Head, Wire};

/// The upstream. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: Arc<Ledger>,
    server: JoinSet<()>,
}

/// A request that was executed.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut upstream = Self::named(listener.local_addr().unwrap());
        upstream.server.spawn(serve(listener, upstream.ledger.clone()));
        upstream
    }

    /// One that does not listen yet. Its loopback address is its own, so that nobody else takes the port.
    pub(crate) async fn closed() -> Self {
        let own = Ipv4Addr::new(127, fastrand::u8(1..), fastrand::u8(..), fastrand::u8(1..255));
        let listener = TcpListener::bind((own, 0)).await.unwrap();
        Self::named(listener.local_addr().unwrap())
    }

    fn named(address: SocketAddr) -> Self {
        Self { address, ledger: Arc::default(), server: JoinSet::new() }
    }

    /// Listens from now on.
    pub(crate) async fn open(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.server.spawn(serve(listener, self.ledger.clone()));
    }

    /// How the executions of `path` are answered, one after the other; the last stands for all that follow.
    pub(crate) fn plan(&self, path: &str, replies: impl IntoIterator<Item = Reply>) {
        let replies = replies.into_iter().collect();
        self.ledger.plans().insert(path.to_owned(), replies);
    }

    /// How often `path` was executed, whatever the query.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.ledger.count(path)
    }

    /// How often anything was executed.
    pub(crate) fn total(&self) -> usize {
        self.ledger.seen().len()
    }

    /// What was executed, in order.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.ledger.seen().clone()
    }
}

#[derive(Debug, Default)]
struct Ledger {
    plans: Mutex<HashMap<String, Vec<Reply>>>,
    seen: Mutex<Vec<Seen>>,
}

impl Ledger {
    fn plans(&self) -> MutexGuard<'_, HashMap<String, Vec<Reply>>> {
        self.plans.lock().unwrap()
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap()
    }

    fn count(&self, path: &str) -> usize {
        self.seen().iter().filter(|seen| seen.path() == path).count()
    }

    /// Executes: counts it, and says how it is answered.
    fn execute(&self, request: &Seen) -> (usize, Reply) {
        let mut seen = self.seen();
        seen.push(request.clone());
        let n = seen.iter().filter(|seen| seen.path() == request.path()).count();
        let plans = self.plans();
        let planned = plans.get(request.path());
        let planned = planned.and_then(|replies| replies.get(n - 1).or_else(|| replies.last()));
        (n, planned.cloned().unwrap_or_else(|| request.default_reply()))
    }
}

impl Seen {
    fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The only value of a field, or nothing.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next()?.to_str().unwrap();
        assert_eq!(values.next(), None, "{name} once");
        Some(value)
    }

    fn default_reply(&self) -> Reply {
        match self.method.as_str() {
            "POST" => Reply::created(),
            _ => Reply::status(200).header("Content-Type", "application/json"),
        }
    }
}

async fn serve(listener: TcpListener, ledger: Arc<Ledger>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let ledger = ledger.clone();
        connections.spawn(async move {
            let mut first = [0; 3];
            let _ = stream.peek(&mut first).await;
            match &first {
                b"PRI" => http2(stream, ledger).await,
                // A TLS handshake: it is not spoken here.
                [0x16, ..] => {}
                _ => {
                    // A peer that breaks off ends the connection, and only that.
                    let _ = http1(Wire::new(stream), ledger).await;
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn http1(mut wire: Wire, ledger: Arc<Ledger>) -> io::Result<()> {
    while let Some(head) = wire.head().await? {
        let request = request(&mut wire, head).await?;
        let (n, reply) = ledger.execute(&request);
        if let Some(gate) = &reply.gate {
            gate.passed().await;
        }
        if reply.end == End::ResetAtOnce {
            wire.reset();
            return Ok(());
        }
        if reply.has_hints {
            wire.write(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
                .await?;
        }
        let body = reply.bytes(n, &request);
        wire.write(&head_of(&reply, n, &request, body.len())).await?;
        if let End::ResetAfter(bytes) = reply.end {
            wire.write(&body[..bytes]).await?;
            wire.reset();
            return Ok(());
        }
        if !has_no_body(&reply, &request) {
            write_body(&mut wire, &reply, &body).await?;
        }
        if reply.is_until_close {
            return Ok(());
        }
    }
    Ok(())
}

async fn request(wire: &mut Wire, head: Head) -> io::Result<Seen> {
    let mut words = head.first.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if head.headers.contains_key("expect") {
        wire.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let (body, _) = wire.body(&head.headers).await?.unwrap_or_default();
    Ok(Seen { method, target, headers: head.headers, body })
}

fn head_of(reply: &Reply, n: usize, request: &Seen, length: usize) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} Planned\r\n", reply.status);
    for (name, value) in reply.headers(n, request) {
        head += &format!("{name}: {value}\r\n");
    }
    head += &match (reply.status, reply.is_chunked) {
        (204 | 304, _) => String::new(),
        _ if reply.is_until_close => String::new(),
        (205, _) => "Content-Length: 0\r\n".to_owned(),
        (_, true) => "Transfer-Encoding: chunked\r\n".to_owned(),
        (_, false) => format!("Content-Length: {length}\r\n"),
    };
    head += "\r\n";
    head.into_bytes()
}

fn has_no_body(reply: &Reply, request: &Seen) -> bool {
    request.method == "HEAD" || matches!(reply.status, 204 | 205 | 304)
}

async fn write_body(wire: &mut Wire, reply: &Reply, body: &[u8]) -> io::Result<()> {
    if !reply.is_chunked {
        return wire.write(body).await;
    }
    let size = if matches!(reply.content, Content::Events(_)) { body.len() } else { 5 };
    for chunk in body.chunks(size) {
        write_chunk(wire, chunk).await?;
    }
    if let Content::Events(gate) = &reply.content {
        gate.passed().await;
        write_chunk(wire, EVENT).await?;
        write_chunk(wire, EVENT).await?;
    }
    let trailers = reply.trailers.iter();
    let trailers: String = trailers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    wire.write(format!("0\r\n{trailers}\r\n").as_bytes()).await
}

async fn write_chunk(wire: &mut Wire, chunk: &[u8]) -> io::Result<()> {
    let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
    framed.extend(chunk);
    framed.extend(b"\r\n");
    wire.write(&framed).await
}

/// For gRPC.
async fn http2(stream: TcpStream, ledger: Arc<Ledger>) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let ledger = ledger.clone();
        async move {
            let (head, body) = request.into_parts();
            let request = Seen {
                method: head.method.to_string(),
                target: head.uri.path_and_query().unwrap().to_string(),
                headers: head.headers,
                body: body.collect().await?.to_bytes(),
            };
            let (n, reply) = ledger.execute(&request);
            if let Some(gate) = &reply.gate {
                gate.passed().await;
            }
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers(n, &request) {
                response = response.header(name, value);
            }
            let trailers: HeaderMap = reply
                .trailers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect();
            let body = Full::new(reply.bytes(n, &request));
            let body = body.with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
            Ok::<_, hyper::Error>(response.body(body).unwrap())
        }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    // The peer may leave at any time.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}
