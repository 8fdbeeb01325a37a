//! The service behind the gateway: it counts what it executes, and its path says how it answers.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Executes, and answers 201.
pub(crate) const QUICK: &str = "/quick";
/// Executes, and answers 201 once the gate lets this execution pass.
pub(crate) const GATED: &str = "/gated";
/// Executes, and answers 201 after [`SLOW_FOR`].
pub(crate) const SLOW: &str = "/slow";
pub(crate) const SLOW_FOR: Duration = Duration::from_secs(4);
/// Executes, and dies without an answer.
pub(crate) const DIES: &str = "/dies";
/// The same at the first request with a key; knows the key again, and answers 201 without another execution.
pub(crate) const DEDUPS: &str = "/dedups";
/// Executes, and dies in the middle of its answer.
pub(crate) const CUT: &str = "/cut";
/// Executes, and answers with 2 MiB.
pub(crate) const LARGE: &str = "/large";
/// Executes, and answers 500.
pub(crate) const FAILS: &str = "/fails";
/// Tells whether a key was executed: `GET /found?key=…`.
const FOUND: &str = "/found";

/// A running service. It ends when it is dropped.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    ledger: Arc<Ledger>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Ledger {
    books: Mutex<Books>,
    /// How many executions may pass.
    gate: watch::Sender<usize>,
}

#[derive(Default)]
struct Books {
    executions: usize,
    keys: HashSet<String>,
}

impl Upstream {
    /// Its gate is closed.
    pub(crate) async fn start() -> Self {
        let ledger = Arc::<Ledger>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, ledger.clone()));
        Self { address, ledger, _server: server }
    }

    pub(crate) fn executions(&self) -> usize {
        self.ledger.books().executions
    }

    /// Lets the first `count` executions pass the gate.
    pub(crate) fn let_pass(&self, count: usize) {
        self.ledger.gate.send_replace(count);
    }
}

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }

    /// Counts an execution, and returns its number.
    fn execute(&self, key: Option<&str>) -> usize {
        let mut books = self.books();
        books.executions += 1;
        books.keys.extend(key.map(str::to_owned));
        books.executions
    }
}

async fn serve(listener: TcpListener, ledger: Arc<Ledger>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let ledger = ledger.clone();
        // A client that leaves is no trouble of the service.
        connections.spawn(async move { drop(answer(stream, &ledger).await) });
    }
}

/// One request, then the connection ends.
async fn answer(mut stream: TcpStream, ledger: &Ledger) -> std::io::Result<()> {
    let Some(request) = Request::read(&mut stream).await? else { return Ok(()) };
    let key = request.key.as_deref();
    let place = request.path.split(['?', '/']).nth(1).map(|place| format!("/{place}"));
    let reply = match place.as_deref().unwrap_or_default() {
        FOUND => found(&request.path, ledger),
        DEDUPS if key.is_some_and(|key| ledger.books().keys.contains(key)) => whole(201, "again"),
        path => {
            let number = ledger.execute(key);
            executed(path, number, ledger).await
        }
    };
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

/// The bytes of the answer of one execution; none where the service dies.
async fn executed(path: &str, number: usize, ledger: &Ledger) -> String {
    let charge = format!("{{\"charge\":\"{:032x}\"}}", fastrand::u128(..));
    match path {
        GATED => {
            // The sender is in the ledger, which outlives this.
            let _ = ledger.gate.subscribe().wait_for(|passing| *passing >= number).await;
            whole(201, &charge)
        }
        SLOW => {
            tokio::time::sleep(SLOW_FOR).await;
            whole(201, &charge)
        }
        DIES | DEDUPS => String::new(),
        CUT => whole(201, &charge).replace("Content-Length: ", "Content-Length: 1"),
        LARGE => whole(201, &charge.repeat(LARGE_BYTES / charge.len())),
        FAILS => whole(500, &charge),
        _ => whole(201, &charge),
    }
}

fn found(path: &str, ledger: &Ledger) -> String {
    let (_, key) = path.split_once("key=").unwrap_or_default();
    match ledger.books().keys.contains(key) {
        true => whole(200, "[{\"id\":\"ch_1\"}]"),
        false => whole(404, "[]"),
    }
}

fn whole(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

struct Request {
    path: String,
    key: Option<String>,
}

impl Request {
    /// `None` if the connection ended before a whole request came.
    async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        loop {
            if let Some(request) = Self::of(&String::from_utf8_lossy(&bytes)) {
                return Ok(Some(request));
            }
            if bytes.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut bytes).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn of(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let value = |name: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let mut values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
            values.next().map(|(_, value)| value.trim().to_owned())
        };
        let length = value("content-length").map_or(0, |length| length.parse().unwrap());
        let path = head.split(' ').nth(1)?.to_owned();
        (body.len() >= length).then(|| Self { path, key: value("idempotency-key") })
    }
}

const LARGE_BYTES: usize = 2 * 1024 * 1024;
const REQUEST_BYTES_MAX: usize = 64 * 1024;
