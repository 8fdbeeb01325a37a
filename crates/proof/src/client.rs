//! A client that does nothing by itself: one request, one connection, no retries.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::request::Builder;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// An answer that arrived whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// Whether it came from the record.
    pub fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }

    /// The code of a problem document.
    pub fn problem(&self) -> Option<String> {
        let document: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        document["code"].as_str().map(str::to_owned)
    }
}

/// Whatever kept an answer from arriving whole.
pub type SendError = Box<dyn std::error::Error + Send + Sync>;

/// Sends `POST path` with `key` on a connection of its own, and waits for the whole answer.
pub async fn post(
    address: SocketAddr,
    path: &str,
    key: &str,
    body: &str,
) -> Result<Answer, SendError> {
    Connection::open(address).await?.post(path, key, body).await
}

/// Sends `POST path` with no key.
pub async fn post_without_key(
    address: SocketAddr,
    path: &str,
    body: &str,
) -> Result<Answer, SendError> {
    Connection::open(address).await?.send(Request::post(path), body).await
}

/// One connection. Dropped with an answer outstanding, it hangs up.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    caller: String,
    sender: SendRequest<Full<Bytes>>,
    _driver: JoinSet<Result<(), hyper::Error>>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Result<Self, SendError> {
        Self::over(TcpStream::connect(address).await?, address).await
    }

    /// Over a stream that is already there, such as one of TLS.
    pub async fn over<T>(stream: T, address: SocketAddr) -> Result<Self, SendError>
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(Self { address, caller: "proof".to_owned(), sender, _driver: driver })
    }

    /// Sends as `caller` from now on.
    pub fn set_caller(&mut self, caller: &str) {
        caller.clone_into(&mut self.caller);
    }

    /// Sends `POST path` with `key`, and waits for the whole answer.
    pub async fn post(&mut self, path: &str, key: &str, body: &str) -> Result<Answer, SendError> {
        self.send(Request::post(path).header("idempotency-key", key), body).await
    }

    /// Sends `request` with `body`, and waits for the whole answer.
    pub async fn send(&mut self, request: Builder, body: &str) -> Result<Answer, SendError> {
        let request = request
            .header("host", self.address.to_string())
            .header("x-api-key", &self.caller)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
        timeout(ANSWER_WAIT_MAX, self.exchange(request)).await?
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, SendError> {
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

/// Longer than any answer takes. Once in thousands of runs a connection that was cut was not told to its request.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);
