//! Floods of frames of HTTP/2: the gateway ends such a connection, others do not suffer, and what was sent goes on.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use proof::tier::tiered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, fields, frame, preface,
};
use crate::lab::Lab;
use crate::upstream::GATED;
use crate::{honest, within};

/// The frame with this number.
type Flood = fn(u32) -> Vec<u8>;

// threat G7, Q19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_end_their_own_connection_only() {
    let lab = Lab::start("").await;
    let floods: [(&str, Flood); 3] =
        [("resets", resets), ("headers without end", headers_without_end), ("pings", pings)];
    for (name, flood) in floods {
        let frames = flooded(lab.gateway.address, flood).await;
        println!("{name}: closed after {frames} of {} frames", frames_max());
        assert!(frames < frames_max() || name == "pings", "{name}: it was never closed");
        println!("{name}: p99 of honest requests {:.1?}", honest::p99(lab.gateway.address).await);
        lab.demand_memory_bounded();
    }
}

// threat G7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_does_not_stop_what_was_sent() {
    let lab = Lab::start("").await;
    let stream = TcpStream::connect(lab.gateway.address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut sender = within("a stream", sender.ready()).await.unwrap();
    let (answer, mut body) = sender.send_request(gated(), false).unwrap();
    body.send_data(Bytes::from_static(b"{}"), true).unwrap();
    within("the execution", async {
        while lab.upstream.count(GATED) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    body.send_reset(h2::Reason::CANCEL);
    drop(answer);
    lab.upstream.set_gate(true);
    // The next one with this key gets its answer, now or when it is there.
    let replayed = within("the answer of the first", async {
        loop {
            let mut sender = sender.clone().ready().await.unwrap();
            let (answer, mut body) = sender.send_request(gated(), false).unwrap();
            body.send_data(Bytes::from_static(b"{}"), true).unwrap();
            let answer = answer.await.unwrap();
            if answer.status() != 409 {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(replayed.status(), 201);
    assert_eq!(replayed.headers()["idempotent-replayed"], "true");
    assert_eq!(lab.upstream.count(GATED), 1);
}

fn gated() -> Request<()> {
    let request = Request::post(format!("http://shop.example{GATED}"));
    request.header("idempotency-key", "one-that-is-reset").body(()).unwrap()
}

/// How many frames were written before the connection was closed.
async fn flooded(at: SocketAddr, flood: Flood) -> u32 {
    let (mut reader, mut writer) = TcpStream::connect(at).await.unwrap().into_split();
    let reading =
        tokio::spawn(async move { while let Ok(1..) = reader.read(&mut [0; 4096]).await {} });
    writer.write_all(&preface()).await.unwrap();
    let mut written = 0;
    while written < frames_max() && !reading.is_finished() {
        if within("the gateway to read", writer.write_all(&flood(written))).await.is_err() {
            break;
        }
        written += 1;
    }
    reading.abort();
    written
}

/// A request that is taken back at once.
fn resets(number: u32) -> Vec<u8> {
    let stream = 2 * number + 1;
    let block = fields(&[
        (":method", b"POST"),
        (":scheme", b"http"),
        (":path", b"/reset"),
        (":authority", b"shop.example"),
        ("idempotency-key", format!("reset-{number:08}").as_bytes()),
    ]);
    let head = frame(HEADERS, END_HEADERS | END_STREAM, stream, &block);
    [head, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
}

/// One head that goes on and on.
fn headers_without_end(number: u32) -> Vec<u8> {
    let block = fields(&[("x", &[b'a'; 1000])]);
    match number {
        0 => frame(HEADERS, 0, 1, &block),
        _ => frame(CONTINUATION, 0, 1, &block),
    }
}

fn pings(number: u32) -> Vec<u8> {
    frame(PING, 0, 0, &u64::from(number).to_be_bytes())
}

fn frames_max() -> u32 {
    tiered(100_000) as u32
}
