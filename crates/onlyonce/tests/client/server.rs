//! A server that does what its script says, and remembers every byte that it was sent.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use onlyonce::code::DESCRIBED_BY;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::environment::TestTime;

/// What is done with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Answer(u16, Vec<(&'static str, String)>, String),
    /// The connection is reset, before or after the headers.
    ResetBefore,
    ResetAfter,
    /// The connection ends in the middle of the body.
    Truncate,
    /// Nothing comes, and the attempt's time is over.
    Hang,
    Garbage,
}

pub(crate) fn answer(status: u16) -> Act {
    Act::Answer(status, Vec::new(), String::new())
}

pub(crate) fn with(status: u16, name: &'static str, value: &str) -> Act {
    Act::Answer(status, vec![(name, value.to_owned())], String::new())
}

/// A problem as a server of ours sends it.
pub(crate) fn problem(status: u16, body: &str) -> Act {
    let media_type = "application/problem+json".to_owned();
    let headers = vec![("content-type", media_type), ("link", DESCRIBED_BY.to_owned())];
    Act::Answer(status, headers, body.to_owned())
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(found, _)| found == name);
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice");
        value
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    script: Mutex<VecDeque<Act>>,
    received: Mutex<Vec<Received>>,
    time: TestTime,
}

impl Server {
    pub(crate) async fn start(time: &TestTime, script: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(State {
            script: Mutex::new(script.into_iter().collect()),
            received: Mutex::default(),
            time: time.clone(),
        });
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, state.clone()));
        Self { address, state, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/charges", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    /// How much of the script was not used.
    pub(crate) fn left(&self) -> usize {
        self.state.script.lock().unwrap().len()
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(converse(stream, state.clone()));
    }
}

async fn converse(mut stream: TcpStream, state: Arc<State>) {
    while let Some(request) = receive(&mut stream).await {
        state.received.lock().unwrap().push(request);
        let act = state.script.lock().unwrap().pop_front().expect("the script is over");
        match act {
            Act::Answer(status, headers, body) => {
                let head = head(status, &headers, body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
            Act::ResetBefore => return reset(stream),
            Act::ResetAfter => {
                stream.write_all(head(201, &[], 100).as_bytes()).await.unwrap();
                return reset(stream);
            }
            Act::Truncate => {
                let half = format!("{}{}", head(201, &[], 100), "x".repeat(50));
                return stream.write_all(half.as_bytes()).await.unwrap();
            }
            Act::Hang => {
                state.time.time_out();
                // Until the client has hung up.
                let _ = stream.read(&mut [0; 64]).await;
                return;
            }
            Act::Garbage => return stream.write_all(b"no http\r\n\r\n").await.unwrap(),
        }
    }
}

fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
}

fn head(status: u16, headers: &[(&'static str, String)], length: usize) -> String {
    let mut head = format!("HTTP/1.1 {status} Test\r\ncontent-length: {length}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}

async fn receive(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.trim_end().split("\r\n").map(str::to_owned);
    let line = lines.next().unwrap();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    });
    let mut received = Received { line, headers: headers.collect(), body: bytes[end..].to_vec() };
    let length = received.header("content-length").map_or(0, |length| length.parse().unwrap());
    while received.body.len() < length {
        if stream.read_buf(&mut received.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(received)
}
