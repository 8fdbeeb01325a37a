//! `onlyonce serve` in front of an upstream that says whatever the test wants said.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use axum::Router;
use axum::http::{HeaderMap, HeaderName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Served {
    pub(crate) gateway: String,
    /// With a slash at its end.
    pub(crate) admin: String,
    process: Child,
    _stdout: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Served {
    /// `admin` stands under `[admin]`, `routes` after it.
    pub(crate) async fn start(admin: &str, routes: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, file) =
            (folder.path().join("onlyonce.db"), folder.path().join("onlyonce.toml"));
        let upstream = echo().await;
        let text = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\nstore = \"sqlite:{}\"\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n{routes}",
            store.display()
        );
        std::fs::write(&file, text).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["serve", "--config"])
            .arg(&file)
            .envs([("OPERATOR", OPERATOR), ("READER", READER)])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        let after =
            |mark: &str| ready.split_once(mark).unwrap().1.trim().split(',').next().unwrap();
        let gateway = after("listening on http://").to_owned();
        let admin = format!("{}/", after("admin "));
        Self { gateway, admin, process, _stdout: stdout, _folder: folder }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Answers with what it was sent: the body, and one header.
async fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(async |headers: HeaderMap, body: String| {
        let said = headers.get("x-say").cloned();
        let said: HeaderMap =
            said.map(|said| (HeaderName::from_static("x-said"), said)).into_iter().collect();
        (said, body)
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends one request as it is, and returns the whole answer.
pub(crate) async fn send(to: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

pub(crate) const OPERATOR: &str = "the-token-that-may-do-everything";
pub(crate) const READER: &str = "the-token-that-may-only-look";
