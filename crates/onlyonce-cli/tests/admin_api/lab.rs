//! A gateway with an admin listener, before a service that counts, and answers or hangs up.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

pub(crate) const OPERATOR: &str = "Authorization: Bearer operators-token\r\n";
pub(crate) const READER: &str = "Authorization: Bearer readers-token\r\n";

pub(crate) struct Lab {
    child: Child,
    pub(crate) address: String,
    pub(crate) admin: String,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) service: Service,
}

impl Lab {
    /// On SQLite, without a token.
    pub(crate) fn start() -> Self {
        Self::with("", "", "")
    }

    /// With an operator's and a reader's token.
    pub(crate) fn with_tokens() -> Self {
        Self::with("", "", "token = \"operators-token\"\nread_token = \"readers-token\"")
    }

    /// With these lines at the top (the store, if it is not SQLite), under `[policy]` and under `[admin]`.
    pub(crate) fn with(top: &str, policy: &str, admin: &str) -> Self {
        let (folder, service) = (tempfile::tempdir().unwrap(), Service::start());
        let store = format!("store = \"sqlite:{}\"", folder.path().join("onlyonce.db").display());
        let top = if top.contains("store = ") { top.to_owned() } else { format!("{store}\n{top}") };
        let text = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"http://{}\"\n{top}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n[policy]\n{policy}\n",
            service.address
        );
        std::fs::write(folder.path().join("onlyonce.toml"), text).unwrap();
        let (child, address, admin) = serve(&folder.path().join("onlyonce.toml"));
        Self { child, address, admin, folder, service }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("onlyonce.toml")
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("onlyonce.db").display())
    }

    /// Ends the gateway; its store stays.
    pub(crate) fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// A client's request.
    pub(crate) fn send(&self, path: &str, key: &str) -> Answer {
        let head = format!("Idempotency-Key: {key}\r\nContent-Type: text/plain\r\n");
        ask(&self.address, "POST", path, &head, "7 euros")
    }

    /// Makes an operation whose outcome is unknown, and returns its id.
    pub(crate) fn unknown(&self, key: &str) -> String {
        let answer = self.send("/hangs-up", key);
        assert_eq!(answer.status, 502, "{}", answer.body);
        self.id(key)
    }

    pub(crate) fn id(&self, key: &str) -> String {
        let listed = self.get(&format!("operations?key={key}"));
        listed["operations"][0]["id"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = ask(&self.admin, "GET", &format!("/api/v1/{path}"), OPERATOR, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// The answer, once it is as it should be.
    pub(crate) fn get_when(&self, path: &str, is_good: impl Fn(&Value) -> bool) -> Value {
        let mut answer = self.get(path);
        for _ in 0..500 {
            if is_good(&answer) {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(20));
            answer = self.get(path);
        }
        panic!("{path}: {answer}");
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        let head = format!("{OPERATOR}Content-Type: application/json\r\n");
        ask(&self.admin, "POST", &format!("/api/v1/{path}"), &head, &body.to_string())
    }

    /// `onlyonce` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.args(arguments).current_dir(self.folder.path()).env("USER", "ann");
        command.env_remove("ONLYONCE_ADMIN_TOKEN").output().unwrap()
    }

    /// The same, on the admin listener.
    pub(crate) fn at_admin(&self, arguments: &[&str]) -> Output {
        let admin = format!("http://{}", self.admin);
        self.command(&[arguments, &["--admin", &admin]].concat())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts a gateway, and returns where it listens.
pub(crate) fn serve(config: &std::path::Path) -> (Child, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
        .args(["serve", "--config"])
        .arg(config)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let after = |word: &str| {
        let (_, after) = ready.split_once(word).unwrap_or_else(|| panic!("not ready: {ready}"));
        after.split([',', '\n']).next().unwrap().trim().to_owned()
    };
    let (address, admin) = (after("listening on http://"), after("admin http://"));
    (child, address, admin)
}

/// An answer, as it was sent.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// One request on a connection of its own.
pub(crate) fn ask(address: &str, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let host = match headers.to_ascii_lowercase().contains("host:") {
        true => String::new(),
        false => format!("Host: {address}\r\n"),
    };
    let length = match method == "GET" {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WAIT)).unwrap();
    let head =
        format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{length}{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A server that has heard enough may answer before it has read everything.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) =
        answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { unchunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        whole += &rest[..size];
        text = &rest[size + 2..];
    }
    whole
}

/// The service behind the gateway: `/hangs-up` executes and closes, everything else answers 201.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    executions: Arc<Mutex<HashMap<String, usize>>>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let executions = Arc::<Mutex<HashMap<String, usize>>>::default();
        let counted = executions.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = counted.clone();
                std::thread::spawn(move || execute(stream, &counted));
            }
        });
        Self { address, executions }
    }

    pub(crate) fn executions(&self, key: &str) -> usize {
        self.executions.lock().unwrap().get(key).copied().unwrap_or(0)
    }
}

fn execute(stream: TcpStream, executions: &Mutex<HashMap<String, usize>>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some((name, value)) = line.split_once(':').filter(|_| !head.is_empty()) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap();
            }
            if name.eq_ignore_ascii_case("idempotency-key") {
                *executions.lock().unwrap().entry(value.trim().to_owned()).or_default() += 1;
            }
        }
        head += &line;
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    let mut stream = reader.into_inner();
    if !head.starts_with("POST /hangs-up") {
        let answer =
            "HTTP/1.1 201 Created\r\nContent-Length: 7\r\nConnection: close\r\n\r\ncharged";
        let _ = stream.write_all(answer.as_bytes());
    }
    let _ = stream.shutdown(Shutdown::Both);
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const WAIT: Duration = Duration::from_secs(120);
