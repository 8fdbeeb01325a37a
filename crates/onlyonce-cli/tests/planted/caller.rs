//! One request on a connection of its own, and what comes back.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: &'static str,
    path: String,
    key: Option<String>,
    caller: String,
    body: String,
    /// Further lines of the head.
    lines: String,
}

impl Ask {
    /// `POST path` with this key.
    pub(crate) fn post(path: &str, key: &str) -> Self {
        Self {
            method: "POST",
            path: path.to_owned(),
            key: Some(key.to_owned()),
            caller: "ann".to_owned(),
            body: "{\"currency\":\"usd\",\"amount\":1}".to_owned(),
            lines: String::new(),
        }
    }

    /// A request to the admin listener, which has no key.
    pub(crate) fn admin(method: &'static str, path: &str, body: &str) -> Self {
        let ask = Self::post(path, "");
        Self { method, key: None, body: body.to_owned(), ..ask }
    }

    pub(crate) fn by(self, caller: &str) -> Self {
        Self { caller: caller.to_owned(), ..self }
    }

    pub(crate) fn with_body(self, body: &str) -> Self {
        Self { body: body.to_owned(), ..self }
    }

    pub(crate) fn with_line(self, line: &str) -> Self {
        Self { lines: format!("{}{line}\r\n", self.lines), ..self }
    }

    fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let Self { method, path, caller, body, lines, .. } = self;
        let key = self.key.as_ref().map(|key| format!("Idempotency-Key: {key}\r\n"));
        let (key, length) = (key.unwrap_or_default(), body.len());
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nX-Api-Key: {caller}\r\n{key}{lines}\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

/// An answer that was read to its end.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").ok_or("no whole head came")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or("no status came")?;
        Ok(Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.head.contains("\r\nidempotent-replayed: true")
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> Option<String> {
        let document: serde_json::Value = serde_json::from_str(&self.body).ok()?;
        document["code"].as_str().map(str::to_owned)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// That it has this status.
    pub(crate) fn must_be(&self, status: u16) -> Result<(), String> {
        match self.status == status {
            true => Ok(()),
            false => Err(format!("answered {} {:.80}, not {status}", self.status, self.body)),
        }
    }

    /// That it is this problem.
    pub(crate) fn must_say(&self, status: u16, code: &str) -> Result<(), String> {
        match self.status == status && self.code().as_deref() == Some(code) {
            true => Ok(()),
            false => {
                Err(format!("answered {} {:.80}, not {status} {code}", self.status, self.body))
            }
        }
    }

    /// That it is the first answer, from the record.
    pub(crate) fn must_replay(&self, first: &Self) -> Result<(), String> {
        match self.is_replay() && (self.status, &self.body) == (first.status, &first.body) {
            true => Ok(()),
            false => Err(format!(
                "answered {} {:.80}, not the first answer, which was {} {:.80}",
                self.status, self.body, first.status, first.body
            )),
        }
    }
}

/// Sends, and waits for the whole answer.
pub(crate) async fn send(address: SocketAddr, ask: &Ask) -> Result<Answer, String> {
    let mut stream = begin(address, ask).await?;
    let mut answer = Vec::new();
    let reading = timeout(ANSWER_WAIT_MAX, stream.read_to_end(&mut answer)).await;
    reading.map_err(|_| "no answer came")?.map_err(|error| error.to_string())?;
    Answer::read(&answer)
}

/// Sends, and leaves the answer unread.
pub(crate) async fn begin(address: SocketAddr, ask: &Ask) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let sent = stream.write_all(&ask.bytes(address)).await;
    sent.map_err(|error| error.to_string())?;
    Ok(stream)
}

const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);
