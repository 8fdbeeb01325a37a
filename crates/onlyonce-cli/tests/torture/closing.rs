//! A server that takes the orderly end of its client's connection for a cancellation, and forgets the key of what it has
//! begun. A reset tells it nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// When the key is forgotten, once the client has closed its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgets {
    /// A control.
    Never,
    AtOnce,
    /// After a while, unless the same key was asked for meanwhile.
    UnlessAskedAgain,
}

#[derive(Clone)]
pub(crate) struct Closing {
    address: SocketAddr,
    forgets: Forgets,
    state: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// The answer, or nothing while it runs.
    answers: HashMap<String, Option<String>>,
    /// Keys that were asked for while they ran.
    asked_again: HashMap<String, usize>,
    executions: HashMap<String, usize>,
}

struct Asked {
    line: String,
    key: String,
    body: String,
}

impl Closing {
    pub(crate) async fn start(forgets: Forgets) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { address, forgets, state: Arc::default() };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/charges", self.address)
    }

    pub(crate) fn count_url(&self) -> String {
        format!("http://{}/count?marker={{marker}}", self.address)
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some(asked) = read(&mut stream).await else { return };
        let (status, text) = match asked.line.split_once("marker=") {
            Some((_, rest)) => (200, self.count(rest.split(' ').next().unwrap_or_default())),
            None => match self.charge(&asked, &mut stream).await {
                Some(answer) => answer,
                None => return,
            },
        };
        let answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
        // A client that is gone gets no answer.
        let _ = stream.write_all(answer.as_bytes()).await;
    }

    /// Nothing, if the client has cancelled it.
    async fn charge(&self, asked: &Asked, stream: &mut TcpStream) -> Option<(u16, String)> {
        if let Some(known) = self.claimed(asked) {
            return Some(known);
        }
        let work = sleep(SERVICE_TIME);
        tokio::pin!(work);
        tokio::select! {
            () = &mut work => {}
            () = closed(stream) => {
                if self.is_forgotten(&asked.key).await {
                    return None;
                }
                work.await;
            }
        }
        let text = format!("{{\"id\":\"of {}\"}}", asked.key);
        self.state.lock().unwrap().answers.insert(asked.key.clone(), Some(text.clone()));
        Some((201, text))
    }

    /// The answer to a key that is known. Else it is claimed and executed.
    fn claimed(&self, asked: &Asked) -> Option<(u16, String)> {
        let mut state = self.state.lock().unwrap();
        match state.answers.get(&asked.key).cloned() {
            Some(Some(text)) => return Some((201, text)),
            Some(None) => {
                *state.asked_again.entry(asked.key.clone()).or_default() += 1;
                return Some((409, "in progress".to_owned()));
            }
            None => state.answers.insert(asked.key.clone(), None),
        };
        let body: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        let marker = body["marker"].as_str().unwrap_or_default().to_owned();
        *state.executions.entry(marker).or_default() += 1;
        None
    }

    async fn is_forgotten(&self, key: &str) -> bool {
        match self.forgets {
            Forgets::Never => return false,
            Forgets::AtOnce => {}
            Forgets::UnlessAskedAgain => sleep(GRACE).await,
        }
        let mut state = self.state.lock().unwrap();
        let is_kept =
            self.forgets == Forgets::UnlessAskedAgain && state.asked_again.contains_key(key);
        if !is_kept {
            state.answers.remove(key);
        }
        !is_kept
    }

    fn count(&self, marker: &str) -> String {
        let state = self.state.lock().unwrap();
        state.executions.get(marker).copied().unwrap_or_default().to_string()
    }
}

/// Ends when the client ends its connection in order, and never if it resets it.
async fn closed(stream: &mut TcpStream) {
    let mut chunk = [0; 64];
    loop {
        match stream.read(&mut chunk).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(_) => std::future::pending().await,
        }
    }
}

/// A whole request.
async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let header = |wanted: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut found = lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.next().map(|(_, value)| value.to_owned())
        };
        let length = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            let line = head.lines().next().unwrap_or_default().to_owned();
            let key = header("idempotency-key").unwrap_or_default();
            return Some(Asked { line, key, body: body.to_owned() });
        }
    }
}

/// Long enough to be cut in its middle.
const SERVICE_TIME: Duration = Duration::from_millis(40);
/// Longer than a retry that comes at once, shorter than one that waits.
const GRACE: Duration = Duration::from_millis(50);
