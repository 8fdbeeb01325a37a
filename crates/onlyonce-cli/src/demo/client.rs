//! A customer's app: it taps Pay, and sometimes loses the answer.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use onlyonce::store::BoxError;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// What a tap came to.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_replay: bool,
    body: Value,
}

/// As the app would show it.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |name: &str| self.body[name].as_str();
        let what = text("id").or_else(|| text("code")).unwrap_or("no answer");
        let replayed = if self.is_replay { ", Idempotent-Replayed: true" } else { "" };
        write!(f, "{} {what}{replayed}", self.status)
    }
}

/// Taps Pay, and waits for the answer.
pub(super) async fn tap(
    to: SocketAddr,
    customer: &str,
    key: Option<&str>,
) -> Result<Answer, BoxError> {
    let stream = TcpStream::connect(to).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Dropped with this future: that is how an answer gets lost.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let mut request = Request::post("/charges").header("host", to.to_string());
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let body = format!("{{\"customer\":\"{customer}\",\"amount\":7998}}");
    let request =
        request.header("content-type", "application/json").body(Full::new(Bytes::from(body)))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or(Value::Null);
    let is_replay = head.headers.contains_key("idempotent-replayed");
    Ok(Answer { status: head.status.as_u16(), is_replay, body })
}

/// Taps Pay, and hangs up as soon as the charge was made.
pub(super) async fn tap_and_lose_the_answer(
    to: SocketAddr,
    customer: &str,
    key: Option<&str>,
    is_charged: impl Fn() -> bool,
) -> Result<(), BoxError> {
    let charged = async {
        while !is_charged() {
            sleep(LOOK_PAUSE).await;
        }
    };
    tokio::select! {
        answer = tap(to, customer, key) => Err(format!("the answer was not lost: {}", answer?).into()),
        charged = timeout(CHARGE_WAIT, charged) => Ok(charged?),
    }
}

const LOOK_PAUSE: Duration = Duration::from_millis(5);
const CHARGE_WAIT: Duration = Duration::from_secs(10);
