//! A customer's app: it taps Pay, and sometimes loses the answer.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use onlyonce::code::{Code, Executed};
use onlyonce::store::BoxError;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// One tap on Pay.
#[derive(Clone, Debug)]
pub(super) struct Tap {
    pub(super) customer: String,
    /// In cents.
    pub(super) amount: i64,
    pub(super) key: Option<String>,
    /// Tells the bank which tap this is, so that its way can be drawn.
    pub(super) number: u64,
    /// Asks the bank to charge and then to cut the connection.
    pub(super) is_cut: bool,
}

impl Tap {
    pub(super) fn new(customer: &str, key: Option<&str>) -> Self {
        let key = key.map(str::to_owned);
        Self { customer: customer.to_owned(), amount: AMOUNT, key, number: 0, is_cut: false }
    }
}

/// What a tap came to.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) is_replay: bool,
    body: Value,
}

impl Answer {
    /// The charge, or the name of the problem.
    pub(super) fn what(&self) -> Option<&str> {
        let text = |name: &str| self.body[name].as_str();
        text("id").or_else(|| text("code"))
    }

    /// What it says became of the tap.
    pub(super) fn state(&self) -> State {
        let code = self.body["code"].as_str().and_then(Code::from_text);
        match (code, code.map(Code::executed)) {
            (Some(Code::InProgress), _) => State::InProgress,
            (Some(Code::KeyReused), _) => State::Reused,
            (_, Some(Executed::No)) => State::Refused,
            (_, Some(Executed::Maybe)) => State::Unknown,
            (_, Some(Executed::Yes)) => State::Charged,
            (_, None) if self.status < 300 => State::Charged,
            (_, None) => State::Unknown,
        }
    }
}

/// What an answer says became of a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Charged,
    /// The first tap is still under way.
    InProgress,
    /// The key belongs to another request.
    Reused,
    /// Nothing was charged for this tap.
    Refused,
    Unknown,
}

impl State {
    /// For the page.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::InProgress => "in-progress",
            Self::Reused => "reused",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// As the app would show it.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.what().unwrap_or("no answer");
        let replayed = if self.is_replay { ", Idempotent-Replayed: true" } else { "" };
        write!(f, "{} {what}{replayed}", self.status)
    }
}

/// Taps Pay, and waits for the answer.
pub(super) async fn tap(to: SocketAddr, tap: &Tap) -> Result<Answer, BoxError> {
    let stream = TcpStream::connect(to).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Dropped with this future: that is how an answer gets lost.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let (head, body) = sender.send_request(request(to, tap)?).await?.into_parts();
    let body = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or(Value::Null);
    let is_replay = head.headers.contains_key("idempotent-replayed");
    Ok(Answer { status: head.status.as_u16(), is_replay, body })
}

fn request(to: SocketAddr, tap: &Tap) -> Result<Request<Full<Bytes>>, BoxError> {
    let mut request = Request::post("/charges").header("host", to.to_string());
    if let Some(key) = &tap.key {
        request = request.header("idempotency-key", key);
    }
    if tap.number > 0 {
        request = request.header("x-tap", tap.number);
    }
    if tap.is_cut {
        request = request.header("x-cut", "after-charge");
    }
    let body = json!({ "customer": tap.customer, "amount": tap.amount }).to_string();
    Ok(request.header("content-type", "application/json").body(Full::new(Bytes::from(body)))?)
}

/// Taps Pay, and hangs up as soon as the charge was made.
pub(super) async fn tap_and_lose_the_answer(
    to: SocketAddr,
    it: &Tap,
    is_charged: impl Fn() -> bool,
) -> Result<(), BoxError> {
    let charged = async {
        while !is_charged() {
            sleep(LOOK_PAUSE).await;
        }
    };
    tokio::select! {
        answer = tap(to, it) => Err(format!("the answer was not lost: {}", answer?).into()),
        charged = timeout(CHARGE_WAIT, charged) => Ok(charged?),
    }
}

/// 79.98.
pub(super) const AMOUNT: i64 = 7998;
const LOOK_PAUSE: Duration = Duration::from_millis(5);
const CHARGE_WAIT: Duration = Duration::from_secs(10);
