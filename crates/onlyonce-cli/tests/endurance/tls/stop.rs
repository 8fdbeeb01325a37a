//! A stop with requests under way over TLS.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Lab, PLAIN};
use crate::upstream::GATED;
use crate::{BODY, until, within};

// R80
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_under_way_are_answered_and_connections_end_with_a_word() {
    let mut t = Lab::start(PLAIN).await;
    let (client, address) = (t.client(None), t.gateway.address);
    let mut busy = client.open(address).await.unwrap();
    let asking = tokio::spawn(async move { busy.post(GATED, "operation-1", BODY).await });
    let mut idle = client.connect(address).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    assert_ne!(within("an answer", idle.read(&mut [0; 4096])).await.unwrap(), 0);
    let half_open = tokio::net::TcpStream::connect(address).await.unwrap();
    until("the execution", || t.upstream.executing() == 1).await;
    t.gateway.terminate();
    // An end without close_notify would be an error.
    let mut rest = Vec::new();
    within("the end of an idle connection", idle.read_to_end(&mut rest)).await.unwrap();
    t.upstream.open_gate();
    let answer = within("the answer", asking).await.unwrap().unwrap();
    assert_eq!(answer.status, 201);
    assert_eq!(t.gateway.ended().await.code(), Some(0));
    drop(half_open);
}
