//! What a new user sees: help, errors, exit codes.

use std::io::{Read, Write};

use crate::lab::{Gateway, Said, Service, send};

// R161
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_code_is_the_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let gateway = Gateway::start(folder.path(), service.address);
    let at = |path: &str| format!("http://{}{path}", gateway.address);
    let quick =
        |url: &str| send(&["POST", url, "--json", "{}", "--max-attempts", "1", "--deadline", "3s"]);

    let charge = ["POST", &at("/charges"), "--json", "{\"amount\":1}", "--key", "order-1"];
    let paid = send(&charge);
    assert_eq!((paid.code, paid.stdout.as_str()), (0, "paid\n"), "{}", paid.stderr);
    assert!(paid.stderr.contains("attempt 1: 201 Created"), "{}", paid.stderr);
    let again = send(&charge);
    assert_eq!((again.code, again.stdout.as_str()), (0, "paid\n"));
    assert!(again.stderr.contains("replayed"), "{}", again.stderr);
    assert_eq!(service.executions("order-1"), 1);

    assert_eq!(quick(&at("/status/402")).code, 1);
    assert_eq!(send(&["POST", &at("/charges"), "--json", "2", "--key", "order-1"]).code, 1);
    assert_eq!(quick("http://127.0.0.1:1/").code, 3);
    assert_eq!(quick(&at("/status/502")).code, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_is_json() {
    let service = Service::start().await;
    let url = format!("http://{}/status/201", service.address);
    let said = send(&["post", &url, "--derive", "invoice", "--derive", "17", "--format", "json"]);
    let summary: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let key = onlyonce::key::Key::derive(["invoice", "17"]);
    assert_eq!(summary["key"], key.as_str());
    assert_eq!(summary["outcome"], "fresh");
    assert_eq!(summary["status"], 201);
    assert_eq!(summary["exit"], 0);
    assert_eq!(summary["body"], "answered\n");
}

#[test]
fn errors_say_what_to_change_and_send_nothing() {
    let wrong: [(&[&str], &str); 12] = [
        (&[], "METHOD"),
        (&["POST"], "must begin with http://"),
        (&["POST", "shop.test/charges"], "must begin with http://"),
        (&["PO ST", "http://127.0.0.1:1/"], "not an HTTP method"),
        (&["POST", "http://127.0.0.1:1/", "--json", "{"], "not JSON"),
        (&["POST", "http://127.0.0.1:1/", "--json", "@/no/such/file"], "cannot read"),
        (&["POST", "http://127.0.0.1:1/", "--json", "1", "--data", "2"], "cannot be used with"),
        (&["POST", "http://127.0.0.1:1/", "-H", "secret-token"], "Name: value"),
        (&["POST", "http://127.0.0.1:1/", "--key", ""], "--key"),
        (&["POST", "http://127.0.0.1:1/", "--deadline", "soon"], "such as"),
        (&["POST", "http://u:p@127.0.0.1:1/"], "credentials"),
        (&["--resume"], "--journal"),
    ];
    for (arguments, told) in wrong {
        let Said { code, stderr, .. } = send(arguments);
        assert_eq!(code, 2, "{arguments:?}: {stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("secret-token"), "{stderr}");
    }
}

#[test]
fn the_help_has_examples_and_the_exit_codes() {
    let help = send(&["--help"]);
    assert_eq!(help.code, 0);
    for told in ["Examples:", "Exit codes:", "--derive", "--journal", "--resume", "reconcile if"] {
        assert!(help.stdout.contains(told), "{told}");
    }
    assert!(
        help.stdout.contains("Usage: onlyonce send [OPTIONS] [METHOD] URL\n"),
        "{}",
        help.stdout
    );
    for garbled in ["METHOD]...", "[METHOD] [URL]...", "Mend", "same again"] {
        assert!(!help.stdout.contains(garbled), "{garbled}: {}", help.stdout);
    }
}

#[test]
fn bodies_come_from_files_and_have_their_media_type() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, "amount=1").unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"amount=1") {
            let mut part = [0; 1024];
            let length = stream.read(&mut part).unwrap();
            read.extend_from_slice(&part[..length]);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .unwrap();
        String::from_utf8(read).unwrap()
    });
    let said = send(&[&url, "--data", &format!("@{}", file.display()), "-H", "X-Api-Key: k"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let request = server.join().unwrap();
    assert!(request.starts_with("POST / HTTP/1.1"), "{request}");
    assert!(request.contains("content-type: application/x-www-form-urlencoded"), "{request}");
    assert!(request.contains("x-api-key: k"), "{request}");
}

// R149, R150
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_script_pays_an_invoice_once_however_often_it_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start().await;
    let gateway = Gateway::start(folder.path(), service.address);
    let url = format!("http://{}/charges", gateway.address);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_onlyonce"));
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    for _ in 0..3 {
        let run = std::process::Command::new(SCRIPT)
            .args(["17", "7998", &url])
            .env("PATH", &path)
            .env("PAY_ONCE_JOURNAL", folder.path().join("journal"))
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        assert_eq!(run.stdout, b"paid\n");
        assert_eq!(String::from_utf8_lossy(&run.stderr), "");
    }
    let key = onlyonce::key::Key::derive(["invoice", "17"]);
    assert_eq!(service.executions(key.as_str()), 1);
}

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/pay-once.sh");
