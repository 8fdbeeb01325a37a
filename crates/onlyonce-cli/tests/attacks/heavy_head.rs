//! Heads that never end, and keys that are too long.

use std::net::SocketAddr;
use std::time::Duration;

use proof::tier::tiered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::lab::Lab;
use crate::within;

// threat G6, Q19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_slow_sockets_hold_up_nobody() {
    let lab = Lab::start("").await;
    lab.endures(|at| attackers(tiered(2_000), move || slow_socket(at))).await;
}

// threat G6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_does_not_end_is_cut_off() {
    let lab = Lab::start("").await;
    let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
    let drips = drip(&mut stream);
    if tiered(10) == 10 {
        within("the gateway to close the connection", drips).await;
    } else {
        let early = tokio::time::timeout(Duration::from_secs(2), drips).await;
        assert!(early.is_err(), "a slow head is given its time");
    }
}

// Until a connection says its version, no timer of the HTTP library runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_begins_no_request_is_closed() {
    let lab = Lab::start("").await;
    let mut silent = JoinSet::new();
    for begun in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        silent.spawn(async move { stream.read(&mut [0; 1]).await });
    }
    let ends = within("the gateway to close them", silent.join_all()).await;
    assert!(ends.iter().all(|end| !matches!(end, Ok(1..))), "{ends:?}");
    // One that has begun a request within that time goes on.
    let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
    stream
        .write_all(b"POST /begun HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .await
        .unwrap();
    assert!(stream.read(&mut [0; 1]).await.is_ok_and(|bytes| bytes == 1));
}

// threat G6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_64_kib_are_refused_and_hold_up_nobody() {
    let lab = Lab::start("").await;
    let gateway = lab.gateway.address;
    // A plain proxy passes them on.
    lab.endures(|at| attackers(4, move || long_keys(at, at == gateway))).await;
    assert_eq!(lab.upstream.count("/refused"), 0);
}

fn attackers<F>(count: usize, one: impl Fn() -> F) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    (0..count).map(|_| one()).collect()
}

/// Again and again, because a patient server ends it at last.
async fn slow_socket(at: SocketAddr) {
    loop {
        // The backlog may be full; so it is for the others.
        if let Ok(mut stream) = TcpStream::connect(at).await {
            drip(&mut stream).await;
        }
        sleep(DRIP).await;
    }
}

/// A byte of a head now and then, until the connection is closed.
async fn drip(stream: &mut TcpStream) {
    stream.write_all(b"POST /slow HTTP/1.1\r\nHost: slow\r\nX-Slow: ").await.unwrap();
    let mut answer = [0; 512];
    loop {
        tokio::select! {
            read = stream.read(&mut answer) => if !matches!(read, Ok(1..)) {
                return;
            },
            () = sleep(DRIP) => if stream.write_all(b"a").await.is_err() {
                return;
            },
        }
    }
}

async fn long_keys(at: SocketAddr, is_gateway: bool) {
    for bytes in [64 * 1024, 60 * 1024].into_iter().cycle() {
        let path = if is_gateway { "/refused" } else { "/passed" };
        let status = long_key(at, path, bytes).await;
        assert!(!is_gateway || [400, 431].contains(&status), "{status}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The status that a key of so many bytes gets.
async fn long_key(at: SocketAddr, path: &str, bytes: usize) -> u16 {
    let mut stream = TcpStream::connect(at).await.unwrap();
    let key = "k".repeat(bytes);
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: long\r\nConnection: close\r\nIdempotency-Key: {key}\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    // Refused before its end, perhaps.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let status = answer.get(9..12).unwrap_or(b"0");
    String::from_utf8_lossy(status).parse().unwrap()
}

const DRIP: Duration = Duration::from_millis(500);
