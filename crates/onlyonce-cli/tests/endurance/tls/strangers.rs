//! Clients that connect and do not finish, or do not speak TLS at all.

use std::time::Duration;

use proof::tier::tiered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::{Lab, PLAIN};
use crate::upstream::QUICK;
use crate::within;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_handshakes_keep_nobody_out() {
    let t = Lab::start(PLAIN).await;
    let (client, address) = (t.client(None), t.gateway.address);
    let mut strangers = Vec::new();
    // More than may be under way on all threads, in the full tier.
    for n in 0..tiered(5_000) {
        let mut stranger = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            // The beginning of a ClientHello.
            stranger.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await.unwrap();
        }
        strangers.push(stranger);
    }
    let began = Instant::now();
    let answer = client.post(address, QUICK, "operation-1").await.unwrap();
    assert_eq!(answer.status, 201);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The last of them is given up too.
    let mut last = strangers.pop().unwrap();
    let end = within("the end of a half-open connection", last.read(&mut [0; 64])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_speak_tls_is_told_nothing_of_the_service() {
    let t = Lab::start(PLAIN).await;
    let mut stream = TcpStream::connect(t.gateway.address).await.unwrap();
    let request = "POST /quick HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut told = Vec::new();
    let _ = timeout(crate::PATIENCE, stream.read_to_end(&mut told)).await.unwrap();
    assert!(!told.windows(4).any(|bytes| bytes == b"HTTP"), "{told:?}");
    assert!(t.upstream.all_executions().is_empty());
}
