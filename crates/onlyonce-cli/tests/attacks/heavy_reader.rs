//! Clients that ask for large answers and do not read them.

use std::net::SocketAddr;

use bytes::Bytes;
use http::request::Builder;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::lab::Lab;
use crate::upstream::{LARGE, SMALL};
use crate::within;

// threats K8, G5: three connections with a zero window took 1.7 GB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_are_bounded() {
    let lab = Lab::start("").await;
    let mut asked = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let sender = closed_window(lab.gateway.address).await;
        for n in 0..STREAMS {
            asked.spawn(head(sender.clone(), format!("large-key-{connection}-{n}")));
        }
    }
    let answers = within("the heads of the answers", asked.join_all()).await;
    let refused = answers.iter().filter(|answer| answer.status() == 503).count();
    println!("{} answers are held, {refused} were refused", answers.len() - refused);
    assert!(refused > 0, "more was asked for than may be held");
    // The bounds together: answers that are stored, held and cached, and what SQLite needs for them.
    let memory_mib = lab.gateway.memory_kib_max() / 1024;
    println!("{memory_mib} MiB resident at most");
    assert!(memory_mib < 512, "{memory_mib} MiB");
    drop(answers);
    // What was refused is stored: whoever reads gets it.
    let (answer, body) = read_whole(lab.gateway.address, "large-key-0-0").await;
    assert_eq!((answer, body), (201, LARGE_BYTES));
}

// Small answers have a bound of their own, and those of HTTP/1 come one at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_answers_that_nobody_reads_are_bounded() {
    let lab = Lab::start("cors = [\"https://shop.test\"]").await;
    let request = || {
        Request::post(format!("http://a{SMALL}"))
            .header("origin", "https://shop.test")
            .header("idempotency-key", "one-small-answer")
    };
    let first = answered(closed_window(lab.gateway.address).await, request()).await;
    assert_eq!(first.status(), 201);
    let mut asked = JoinSet::new();
    for _ in 0..SMALL_CONNECTIONS {
        let sender = closed_window(lab.gateway.address).await;
        for _ in 0..STREAMS {
            asked.spawn(answered(sender.clone(), request()));
        }
    }
    let answers = within("the heads of the answers", asked.join_all()).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status() == 503).collect();
    println!("{} of {} answers were refused", refused.len(), answers.len());
    assert!(!refused.is_empty(), "more was asked for than may be held");
    for refusal in refused {
        let readable = refusal.headers().get("access-control-allow-origin");
        assert_eq!(readable.unwrap(), "https://shop.test");
    }
    let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
    let request = format!(
        "POST {SMALL} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: one-small-answer\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    within("the answer over HTTP/1", stream.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 201");
    assert_eq!(lab.upstream.count(SMALL), 1);
}

// threat K8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_makes_no_progress_is_closed() {
    let lab = Lab::start("").await;
    let http2 = async {
        let sender = closed_window(lab.gateway.address).await;
        let answer = head(sender.clone(), "http2-reader-key".to_owned()).await;
        assert_eq!(answer.status(), 201);
        closed(&sender).await;
    };
    let unread = async |path: &str| {
        let sender = closed_window(lab.gateway.address).await;
        let answer = answered(sender.clone(), Request::get(format!("http://a{path}"))).await;
        assert!(answer.status().is_success());
        closed(&sender).await;
    };
    let (streamed, described) = (unread(LARGE), unread("/.well-known/idempotency"));
    let a_byte_a_second = async {
        let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
        let head = format!("GET {LARGE} HTTP/1.1\r\nHost: a\r\n\r\n");
        // More answers than the buffers of the system hold.
        stream.write_all(head.repeat(16).as_bytes()).await.unwrap();
        while stream.read_u8().await.is_ok() && stream.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    let http1 = async {
        let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
        // More answers than the buffers of the system hold.
        for n in 0..16 {
            let request = format!(
                "POST {LARGE} HTTP/1.1\r\nHost: a\r\nIdempotency-Key: http1-reader-{n}\r\nContent-Length: 0\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
        }
        // A closed peer shows as an error of the next writes, for nothing is read here.
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    let all = async { tokio::join!(http2, streamed, described, http1, a_byte_a_second) };
    within("the connections to be closed", Box::pin(all)).await;
}

// Nothing is there to be read yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_for_its_answer_is_not_cut_off() {
    let lab = Lab::start("upstream_timeout = \"90s\"").await;
    let mut stream = TcpStream::connect(lab.gateway.address).await.unwrap();
    stream.write_all(b"GET /gated HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(35)).await;
    lab.upstream.set_gate(true);
    let mut first = [0; 12];
    within("the late answer", stream.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 201");
}

/// A connection whose streams may send nothing of a body.
async fn closed_window(at: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(at).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// An answer whose body is left where it is.
async fn head(sender: SendRequest<Full<Bytes>>, key: String) -> Response<Incoming> {
    let request = Request::post(format!("http://a{LARGE}")).header("idempotency-key", key);
    answered(sender, request).await
}

async fn answered(mut sender: SendRequest<Full<Bytes>>, request: Builder) -> Response<Incoming> {
    sender.ready().await.unwrap();
    sender.send_request(request.body(Full::default()).unwrap()).await.unwrap()
}

async fn closed(sender: &SendRequest<Full<Bytes>>) {
    while !sender.is_closed() {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

async fn read_whole(at: SocketAddr, key: &str) -> (u16, usize) {
    let stream = TcpStream::connect(at).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    for _ in 0..1_000 {
        let request = Request::post(format!("http://a{LARGE}")).header("idempotency-key", key);
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        if response.status() == 201 {
            let status = response.status().as_u16();
            return (status, response.into_body().collect().await.unwrap().to_bytes().len());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("never answered");
}

const CONNECTIONS: usize = 3;
const STREAMS: usize = 250;
/// With all their streams 70 MiB.
const SMALL_CONNECTIONS: usize = 18;
const LARGE_BYTES: usize = 1 << 20;
