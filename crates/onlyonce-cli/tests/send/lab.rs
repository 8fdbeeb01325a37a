//! A service that counts executions, the gateway before it, and `send`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

/// The real binary.
pub(crate) fn onlyonce(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What a run of `send` printed, and its exit code.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn send(arguments: &[&str]) -> Said {
    let arguments: Vec<_> = ["send"].iter().chain(arguments).copied().collect();
    let Output { status, stdout, stderr } = onlyonce(&arguments).output().unwrap();
    Said {
        code: status.code().unwrap(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// Counts executions by key, and answers as the path says.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    executions: Arc<Mutex<HashMap<String, usize>>>,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let executions = Arc::default();
        let service = Self { address: listener.local_addr().unwrap(), executions };
        let app = Router::new()
            .route("/charges", post(charge))
            .route("/receipts", post(receipt))
            .route("/status/{code}", post(status))
            .with_state(service.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        service
    }

    pub(crate) fn executions(&self, key: &str) -> usize {
        self.executions.lock().unwrap().get(key).copied().unwrap_or(0)
    }

    fn execute(&self, headers: &HeaderMap) {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        *self.executions.lock().unwrap().entry(key).or_default() += 1;
    }
}

async fn charge(State(service): State<Service>, headers: HeaderMap) -> Response {
    service.execute(&headers);
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=20))).await;
    (StatusCode::CREATED, "paid\n").into_response()
}

/// An answer that does not fit into a pipe.
async fn receipt(State(service): State<Service>, headers: HeaderMap) -> Response {
    service.execute(&headers);
    (StatusCode::CREATED, "paid\n".repeat(100_000)).into_response()
}

async fn status(
    State(service): State<Service>,
    axum::extract::Path(code): axum::extract::Path<u16>,
    headers: HeaderMap,
) -> Response {
    service.execute(&headers);
    (StatusCode::from_u16(code).unwrap(), "answered\n").into_response()
}

/// `onlyonce serve` in a process of its own. Killed when dropped.
pub(crate) struct Gateway {
    pub(crate) address: String,
    process: Child,
}

impl Gateway {
    pub(crate) fn start(folder: &Path, upstream: SocketAddr) -> Self {
        let store = format!("sqlite:{}", folder.join("onlyonce.db").display());
        let upstream = format!("http://{upstream}");
        let arguments =
            ["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream, "--store", &store];
        let mut process = onlyonce(&arguments).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next());
        Self { address: address.unwrap().to_owned(), process }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A service that does what it is told, request by request: a whole answer, or `LOSE` for none at all.
pub(crate) fn scripted(acts: &[&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/charges", listener.local_addr().unwrap());
    let acts: Vec<_> = acts.iter().map(|act| (*act).to_owned()).collect();
    std::thread::spawn(move || {
        for act in acts {
            let mut stream = next_operation(&listener);
            if act != LOSE {
                stream.write_all(act.as_bytes()).unwrap();
            }
        }
    });
    url
}

/// The connection of the next operation. A question about the service itself is answered with 404.
fn next_operation(listener: &TcpListener) -> TcpStream {
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        // Requests fit into one read: they are small, and sent in one piece.
        let mut request = [0; 64 * 1024];
        let length = stream.read(&mut request).unwrap();
        if !request[..length].starts_with(b"GET /.well-known/") {
            return stream;
        }
        stream.write_all(answer(404, &[], "").as_bytes()).unwrap();
    }
}

/// The request is read, and the connection closed without an answer.
pub(crate) const LOSE: &str = "";

/// An answer with these header lines, for one connection each.
pub(crate) fn answer(status: u16, lines: &[&str], body: &str) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Test\r\n{lines}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}
