//! Health and metrics of the real binary.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

struct Served {
    child: Child,
    admin: String,
    _folder: tempfile::TempDir,
}

impl Served {
    /// In front of nothing: nobody asks for the upstream here.
    fn start(admin: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("onlyonce.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\nstore = \"sqlite:{}\"\n[admin]\n{admin}\n",
            folder.path().join("onlyonce.db").display()
        );
        std::fs::write(&config, text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_onlyonce"))
            .args(["serve", "--config"])
            .arg(&config)
            .env("ONLYONCE_ADMIN_TOKEN", "a-token-for-tests")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let (_, admin) = ready.trim().split_once("admin http://").unwrap();
        Self { child, admin: admin.to_owned(), _folder: folder }
    }

    /// The status and the body.
    fn get(&self, path: &str, headers: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.admin).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// R190
#[test]
fn health_and_metrics_are_told_on_loopback() {
    let served = Served::start("listen = \"127.0.0.1:0\"");
    assert_eq!(served.get("/health/live", "").0, 200);
    assert_eq!(served.get("/health/ready", ""), (200, "ready\n".to_owned()));
    let (status, metrics) = served.get("/metrics", "");
    assert_eq!(status, 200);
    assert!(metrics.contains("onlyonce_executed_total{route=\"default\"} 0"), "{metrics}");
    assert_eq!(served.get("/", "").0, 200);
    assert_eq!(served.get("/nothing", "").0, 404);
}

// threat G17
#[test]
fn metrics_ask_for_the_token_where_there_is_one_and_health_does_not() {
    let served = Served::start("listen = \"127.0.0.1:0\"\ntoken = \"env:ONLYONCE_ADMIN_TOKEN\"");
    for wrong in ["", "Authorization: Bearer wrong\r\n", "Authorization: a-token-for-tests\r\n"] {
        assert_eq!(served.get("/metrics", wrong).0, 401, "{wrong:?}");
    }
    assert_eq!(served.get("/metrics", "Authorization: Bearer a-token-for-tests\r\n").0, 200);
    assert_eq!(served.get("/health/live", "").0, 200);
}
