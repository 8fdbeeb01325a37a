//! Connections on which nothing is asked: they keep nobody out, on the listener of the operators and on that of the
//! clients, also where the process may open few files.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::frames::{PING, frame, preface};
use crate::gateway::Gateway;
use crate::lab::open_files_max;
use crate::upstream::{GATED, Upstream};
use crate::within;

const TOKEN: &str = "Authorization: Bearer operators-token\r\n";
/// What a probe waits for, on a machine that does other things too.
const AT_ONCE: Duration = Duration::from_secs(2);
/// More than the admin listener has places.
const STRANGERS: usize = 400;

// threat K27
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_strangers_do_not_close_the_admin_listener() {
    let lab = Lab::start("", "").await;
    let at = lab.gateway.admin;
    let mut operator = shown_token(at).await;
    let strangers = gather(at, STRANGERS, false).await;
    lab.operators_are_answered().await;
    drop(strangers);
    // And again, while each of them comes back as soon as it was sent away.
    let strangers = gather(at, STRANGERS, true).await;
    for _ in 0..20 {
        lab.operators_are_answered().await;
    }
    // Whoever has shown a token is not among those that make room.
    assert_eq!(asked(&mut operator, "/api/v1/summary", TOKEN).await, 200);
    drop(strangers);
    let made_room = r#"onlyonce_connections_dropped_total{listener="admin",why="made_room"}"#;
    assert!(lab.metric(made_room).await > 0);
}

// threat K27
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_of_the_admin_listener_has_a_few_seconds_for_its_first_head() {
    let lab = Lab::start("", "").await;
    let at = lab.gateway.admin;
    let mut known = shown_token(at).await;
    let since = Instant::now();
    let mut strangers = JoinSet::new();
    for begun in ["", "GET /health/live HTT", "GET / HTTP/1.1\r\nHost: a\r\nX: "] {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        strangers.spawn(async move { stream.read_to_end(&mut Vec::new()).await });
    }
    within("the listener to close them", strangers.join_all()).await;
    assert!(since.elapsed() < Duration::from_secs(15), "after {:?}", since.elapsed());
    sleep(Duration::from_secs(10).saturating_sub(since.elapsed())).await;
    assert_eq!(asked(&mut known, "/api/v1/summary", TOKEN).await, 200);
}

// threat K28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_requests_is_closed_in_http1_and_http2() {
    let lab = Lab::start("", "").await;
    let at = lab.gateway.address;
    // hyper answers every PING.
    let silent = async {
        let (_sender, connection) = http2(at).await;
        connection.await.expect("it is closed in order");
    };
    let after_a_request = async {
        let (mut sender, connection) = served(at).await;
        assert_eq!(get(&mut sender, "/quick").await.status(), 201);
        connection.await.unwrap().expect("it is closed in order");
    };
    // This one answers none, nor what follows the word that the connection ends.
    let deaf = async {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(&preface()).await.unwrap();
        until_closed(&mut stream).await;
    };
    // A frame now and then is no request.
    let chatty = async {
        let (mut reader, mut writer) = TcpStream::connect(at).await.unwrap().into_split();
        writer.write_all(&preface()).await.unwrap();
        let pinging = tokio::spawn(async move {
            while writer.write_all(&frame(PING, 0, 0, &[7; 8])).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        until_closed(&mut reader).await;
        pinging.abort();
    };
    let http1 = async {
        let mut stream = TcpStream::connect(at).await.unwrap();
        assert_eq!(asked(&mut stream, "/quick", "").await, 201);
        until_closed(&mut stream).await;
    };
    let since = Instant::now();
    let all = async { tokio::join!(silent, after_a_request, deaf, chatty, http1) };
    within("the connections to be closed", Box::pin(all)).await;
    assert!((25..45).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
}

// threat K28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_a_request_is_not_idle_however_long_it_takes() {
    let (slow, open) = slow_service().await;
    let routes = format!(
        "[policy]\nupstream_timeout = \"90s\"\n[[route]]\nmatch = \"* /begun\"\nupstream = \"http://{slow}\""
    );
    let lab = Lab::start("", &routes).await;
    let at = lab.gateway.address;
    let waiting = async {
        let (mut sender, _connection) = served(at).await;
        assert_eq!(get(&mut sender, GATED).await.status(), 201);
    };
    let streaming = async {
        let (mut sender, _connection) = served(at).await;
        let mut body = get(&mut sender, "/begun").await.into_body();
        let mut read = Vec::new();
        while let Some(bytes) = body.data().await {
            read.extend_from_slice(&bytes.expect("it is not broken off"));
        }
        assert_eq!(read, b"begun, and ended");
    };
    let opening = async {
        sleep(Duration::from_secs(40)).await;
        lab.upstream.set_gate(true);
        open.send_replace(true);
    };
    let all = async { tokio::join!(waiting, streaming, opening) };
    within("the late answers", Box::pin(all)).await;
}

// threat K28
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_stop_a_gateway_that_may_open_few_files() {
    let lab = Lab::start("ulimit -n 256; ", "").await;
    let mut idle = Vec::new();
    for _ in 0..300 {
        let (sender, connection) = within("a connection", http2(lab.gateway.address)).await;
        idle.push((sender, tokio::spawn(connection)));
    }
    let silent = gather(lab.gateway.address, 300, true).await;
    let strangers = gather(lab.gateway.admin, STRANGERS, true).await;
    for n in 0..20 {
        lab.operators_are_answered().await;
        let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
        let head = format!(
            "POST /few HTTP/1.1\r\nHost: a\r\nIdempotency-Key: few-files-{n}\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(status(&mut stream).await, 201);
    }
    drop((silent, strangers));
    let made_room = r#"onlyonce_connections_dropped_total{listener="clients",why="made_room"}"#;
    assert!(lab.metric(made_room).await > 0);
    let no_file = r#"onlyonce_connections_dropped_total{listener="clients",why="no_file"}"#;
    assert_eq!(lab.metric(no_file).await, 0);
    let told = lab.gateway.errors();
    let lines = told.matches("made room").count();
    assert!((1..=4).contains(&lines), "said once in a while: {told}");
    assert!(told.contains("256 files"), "{told}");
}

struct Lab {
    upstream: Upstream,
    gateway: Gateway,
    _folder: tempfile::TempDir,
}

impl Lab {
    /// A gateway with a token for operators and these routes; the shell does `first` before.
    async fn start(first: &str, routes: &str) -> Self {
        open_files_max();
        let (folder, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
        let gateway = start(folder.path(), upstream.address, (first, routes)).await;
        Self { upstream, gateway, _folder: folder }
    }

    /// Health without a token, the rest with one: each at once, on a connection of its own.
    async fn operators_are_answered(&self) {
        for (path, head) in [
            ("/health/live", ""),
            ("/health/ready", ""),
            ("/metrics", TOKEN),
            ("/api/v1/operations", TOKEN),
        ] {
            let asking = async {
                let mut stream = TcpStream::connect(self.gateway.admin).await.unwrap();
                asked(&mut stream, path, head).await
            };
            let answered = timeout(AT_ONCE, asking).await;
            assert_eq!(answered, Ok(200), "{path}");
        }
    }

    async fn metric(&self, name: &str) -> usize {
        let mut stream = TcpStream::connect(self.gateway.admin).await.unwrap();
        let head = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{TOKEN}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut page = String::new();
        within("the page of metrics", stream.read_to_string(&mut page)).await.unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no {name}: {page}")).trim().parse().unwrap()
    }
}

async fn start(folder: &Path, upstream: SocketAddr, (first, routes): (&str, &str)) -> Gateway {
    let config = format!(
        "upstream = \"http://{upstream}\"\nstore = \"sqlite:onlyonce.db\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"operators-token\"\n{routes}\n"
    );
    fs::write(folder.join("onlyonce.toml"), config).unwrap();
    let serve = "exec \"$0\" serve --config onlyonce.toml --listen 127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{first}{serve}"), env!("CARGO_BIN_EXE_onlyonce")]);
    Gateway::running(folder, command.current_dir(folder).stdin(Stdio::null())).await
}

/// So many connections on which nothing is sent. With `again` each is made anew when it was closed.
async fn gather(at: SocketAddr, count: usize, again: bool) -> JoinSet<()> {
    let mut strangers = JoinSet::new();
    for _ in 0..count {
        let mut stream = within("a connection", TcpStream::connect(at)).await.unwrap();
        strangers.spawn(async move {
            loop {
                let _ = stream.read(&mut [0; 1]).await;
                if !again {
                    return;
                }
                match TcpStream::connect(at).await {
                    Ok(next) => stream = next,
                    Err(_) => sleep(Duration::from_millis(10)).await,
                }
            }
        });
    }
    strangers
}

/// A connection on which a token was shown.
async fn shown_token(at: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(at).await.unwrap();
    assert_eq!(asked(&mut stream, "/api/v1/summary", TOKEN).await, 200);
    stream
}

/// The status of an answer, on a connection that stays open. The rest of the answer is read too.
async fn asked(stream: &mut TcpStream, path: &str, head: &str) -> u16 {
    let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{head}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    status(stream).await
}

async fn status(stream: &mut TcpStream) -> u16 {
    let mut answer = Vec::new();
    loop {
        let read = within("an answer", stream.read_buf(&mut answer)).await.unwrap();
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.unwrap_or("0").parse().unwrap();
            if body.len() >= length {
                return head[9..12].parse().unwrap();
            }
        }
        assert!(read > 0, "closed after {text:?}");
    }
}

async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) {
    while stream.read(&mut [0; 512]).await.is_ok_and(|bytes| bytes > 0) {}
}

type Sender = h2::client::SendRequest<bytes::Bytes>;
type Connection = h2::client::Connection<TcpStream>;

async fn http2(at: SocketAddr) -> (Sender, Connection) {
    let stream = TcpStream::connect(at).await.unwrap();
    h2::client::handshake(stream).await.unwrap()
}

/// The same, with a task that serves it.
async fn served(at: SocketAddr) -> (Sender, JoinHandle<Result<(), h2::Error>>) {
    let (sender, connection) = http2(at).await;
    (sender, tokio::spawn(connection))
}

async fn get(sender: &mut Sender, path: &str) -> Response<h2::RecvStream> {
    let request = Request::get(format!("http://a{path}")).body(()).unwrap();
    let mut sender = sender.clone().ready().await.unwrap();
    let (answer, _) = sender.send_request(request, true).unwrap();
    answer.await.unwrap()
}

/// A service that begins its answer, and ends it when it is told to.
async fn slow_service() -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (open, mut opened) = watch::channel(false);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).await.unwrap(), 0);
        let begun = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n";
        stream.write_all(begun.as_bytes()).await.unwrap();
        opened.wait_for(|open| *open).await.unwrap();
        stream.write_all(b"b\r\n, and ended\r\n0\r\n\r\n").await.unwrap();
        until_closed(&mut stream).await;
    });
    (address, open)
}
