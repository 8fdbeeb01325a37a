//! A gateway process, the service behind it, and a collector of traces.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use onlyonce::clock::{Clock, SystemClock};

/// A server that remembers the requests that it got, each as a text.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    got: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers each request with this body, or closes the connection for one that says `x-do: reset`.
    pub(crate) fn start(body: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, got) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = got.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = seen.clone();
                thread::spawn(move || answer(stream, body, &seen));
            }
        });
        Self { address, got }
    }

    pub(crate) fn got(&self) -> Vec<String> {
        self.got.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, body: &str, seen: &Mutex<Vec<String>>) {
    let Some(request) = whole(&mut stream) else { return };
    let resets = request.contains("x-do: reset");
    seen.lock().unwrap().push(request);
    if !resets {
        let length = body.len();
        let _ = write!(
            stream,
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
    }
}

/// One request with its body.
fn whole(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(text);
        }
    }
}

/// A running gateway. Killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: String,
    pub(crate) admin: String,
    errors: PathBuf,
    _folder: tempfile::TempDir,
}

impl Gateway {
    /// In front of `upstream`, with these lines at the top of its configuration and at its end; `log` is its filter.
    pub(crate) fn start(upstream: SocketAddr, top: &str, end: &str, log: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let errors = folder.path().join("errors.log");
        let config = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\n{top}\n[admin]\nlisten = \"127.0.0.1:0\"\n{end}\n"
        );
        fs::write(folder.path().join("onlyonce.toml"), config).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["serve", "--config", "onlyonce.toml", "--log", log])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let named = |what: &str| {
            let (_, rest) = ready.split_once(what).unwrap_or_else(|| {
                panic!("{ready:?}: {:?}", fs::read_to_string(&errors));
            });
            rest.split([',', '\n']).next().unwrap().to_owned()
        };
        let (address, admin) = (named("listening on http://"), named("admin http://"));
        Self { child, address, admin, errors, _folder: folder }
    }

    /// `POST /charges`; the status and the whole answer.
    pub(crate) fn post(&self, key: &str, headers: &str, body: &str) -> (u16, String) {
        let key = match key {
            "" => String::new(),
            key => format!("Idempotency-Key: {key}\r\n"),
        };
        let length = body.len();
        let request = format!(
            "POST /charges HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{key}{headers}\r\n{body}"
        );
        exchange(&self.address, &request)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&self.admin, path)
    }

    /// Everything on its stderr so far.
    pub(crate) fn errors(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// `SIGTERM`, and the end.
    pub(crate) fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn get(address: &str, path: &str) -> (u16, String) {
    exchange(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
    )
}

fn exchange(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).unwrap_or("0").parse().unwrap(), answer)
}

/// Waits until `is_so`, at most half a minute.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = SystemClock.boot();
    while !is_so() {
        assert!(SystemClock.boot() - start < Duration::from_secs(30), "still waiting: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
