//! Bodies that are too large, or never end.

use std::net::SocketAddr;
use std::time::Duration;

use proof::tier::tiered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::lab::Lab;
use crate::within;

// threat G5, Q19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_gigabytes_hold_up_nobody() {
    let lab = Lab::start("").await;
    lab.endures(|at| (0..tiered(500)).map(|n| slow_gigabytes(at, n)).collect::<JoinSet<_>>()).await;
    assert_eq!(lab.upstream.count("/gigabyte"), 0, "nothing of a half-sent body is executed");
}

// threat G5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gigabyte_at_a_byte_a_second_ends_with_408() {
    let lab = Lab::start("").await;
    let mut stream = begin(lab.gateway.address, "slow").await.unwrap();
    if tiered(10) == 10 {
        let answer = within("an answer to a body that does not end", drip(&mut stream)).await;
        assert!(answer.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&answer));
    } else {
        let early = timeout(Duration::from_secs(3), drip(&mut stream)).await;
        assert!(early.is_err(), "a slow body is given its time: {early:?}");
    }
    assert_eq!(lab.upstream.count("/gigabyte"), 0);
    lab.demand_memory_bounded();
}

// threat G5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fast_gigabyte_is_refused_long_before_its_end() {
    let lab = Lab::start("").await;
    let sent = fast_gigabytes(lab.gateway.address).await;
    println!("{} MiB were taken from eight clients", sent >> 20);
    assert!(sent < GIGABYTE / 4);
    assert_eq!(lab.upstream.count("/gigabyte"), 0);
    lab.demand_memory_bounded();
}

async fn fast_gigabytes(at: SocketAddr) -> usize {
    let mut clients = JoinSet::new();
    for n in 0..8 {
        clients.spawn(fast_gigabyte(at, n));
    }
    clients.join_all().await.into_iter().sum()
}

/// How many bytes were taken before the answer.
async fn fast_gigabyte(at: SocketAddr, n: usize) -> usize {
    let stream = begin(at, &format!("fast-{n}")).await.unwrap();
    let (mut answer, mut body) = stream.into_split();
    let writing = async {
        let block = vec![b'x'; 64 * 1024];
        let mut sent = 0;
        while sent < GIGABYTE && body.write_all(&block).await.is_ok() {
            sent += block.len();
        }
        sent
    };
    let mut told = Vec::new();
    let (sent, _) =
        within("an answer", async { tokio::join!(writing, answer.read_to_end(&mut told)) }).await;
    // A reset may overtake the answer; then there is none.
    let told = String::from_utf8_lossy(&told);
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 413 "), "{told}");
    sent
}

async fn slow_gigabytes(at: SocketAddr, n: usize) {
    loop {
        if let Ok(mut stream) = begin(at, &format!("slow-{n}")).await {
            drip(&mut stream).await;
        }
        sleep(DRIP).await;
    }
}

/// A byte a second, until there is an answer.
async fn drip(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = vec![0; 1024];
    loop {
        tokio::select! {
            read = stream.read(&mut answer) => {
                answer.truncate(read.unwrap_or(0));
                return answer;
            }
            () = sleep(DRIP) => if stream.write_all(b"x").await.is_err() {
                return Vec::new();
            },
        }
    }
}

/// The head of a request, and of its one chunk.
async fn begin(at: SocketAddr, key: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(at).await?;
    let head = format!(
        "POST /gigabyte HTTP/1.1\r\nHost: large\r\nIdempotency-Key: {key}\r\nTransfer-Encoding: chunked\r\n\r\n{GIGABYTE:x}\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

const GIGABYTE: usize = 1 << 30;
const DRIP: Duration = Duration::from_secs(1);
