//! Unguarded traffic passes untouched, as it comes: uploads, downloads, upgrades.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

struct Served {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(upstream: SocketAddr, policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("onlyonce.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\nstore = \"sqlite:{}\"\n[policy]\n{policy}\n",
            folder.path().join("onlyonce.db").display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlyonce"));
        command.args(["serve", "--config"]).arg(&config).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let (_, rest) = ready.split_once("listening on http://").unwrap();
        Self { child, address: rest.split(',').next().unwrap().to_owned(), _folder: folder }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An upstream of one connection, on a thread of its own.
fn upstream(serve: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve(listener.accept().unwrap().0));
    address
}

/// Reads until what was read ends with `end`.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(end) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    read
}

#[test]
fn an_upload_may_take_longer_than_the_upstream_may_take_to_answer() {
    let (tell, told) = mpsc::channel();
    let address = upstream(move |mut stream| {
        read_until(&mut stream, b"\r\n\r\n");
        let first = read_until(&mut stream, b"piece 0\r\n");
        tell.send(first).unwrap();
        read_until(&mut stream, b"0\r\n\r\n");
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let served = Served::start(address, "upstream_timeout = \"300ms\"\nlease = \"300ms\"");
    let mut client = served.connect();
    client.write_all(b"PUT /u HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    client.write_all(b"7\r\npiece 0\r\n").unwrap();
    told.recv_timeout(Duration::from_secs(10))
        .expect("the first piece arrives before the last is sent");
    for piece in 1..8 {
        thread::sleep(Duration::from_millis(100));
        client.write_all(format!("7\r\npiece {piece}\r\n").as_bytes()).unwrap();
    }
    client.write_all(b"0\r\n\r\n").unwrap();
    let answer = read_until(&mut client, b"\r\n\r\nok");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn an_answer_that_does_not_come_in_time_is_504() {
    let address = upstream(|mut stream| {
        read_until(&mut stream, b"\r\n\r\n");
        // Silent until the other side gives up.
        let _ = stream.read(&mut [0]);
    });
    let served = Served::start(address, "upstream_timeout = \"300ms\"\nlease = \"300ms\"");
    let mut client = served.connect();
    client.write_all(b"GET /d HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let answer = read_until(&mut client, b"\r\n\r\n");
    assert!(answer.starts_with(b"HTTP/1.1 504"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn a_download_is_passed_on_as_it_comes() {
    let (go, may_go) = mpsc::channel();
    let address = upstream(move |mut stream| {
        read_until(&mut stream, b"\r\n\r\n");
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head).unwrap();
        stream.write_all(b"9\r\ndata: 1\n\n\r\n").unwrap();
        may_go.recv().unwrap();
        stream.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").unwrap();
    });
    let served = Served::start(address, "upstream_timeout = \"30s\"");
    let mut client = served.connect();
    client.write_all(b"GET /events HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    read_until(&mut client, b"data: 1\n\n");
    go.send(()).unwrap();
    read_until(&mut client, b"data: 2\n\n");
}

#[test]
fn an_upgraded_connection_belongs_to_its_two_ends() {
    let address = upstream(|mut stream| {
        let head = read_until(&mut stream, b"\r\n\r\n");
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(
            head.contains("upgrade: websocket") && head.contains("connection: upgrade"),
            "{head}"
        );
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello";
        stream.write_all(switch).unwrap();
        let asked = read_until(&mut stream, b"\x00\n\x01");
        stream.write_all(&asked).unwrap();
    });
    let served = Served::start(address, "upstream_timeout = \"30s\"");
    let mut client = served.connect();
    let request =
        b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(request).unwrap();
    let head = read_until(&mut client, b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    read_until(&mut client, b"hello");
    // Bytes that no HTTP reader would let pass.
    client.write_all(b"\n\r\x00\n\x01").unwrap();
    read_until(&mut client, b"\n\r\x00\n\x01");
}
