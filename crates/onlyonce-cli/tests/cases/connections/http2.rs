//! The one HTTP/2 connection to an upstream, which all requests share.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::peer::{Multiplexed, PATIENT, Peer, Streams, silent};
use crate::client::{Ask, Connection};
use crate::profile::{D, Profile, Set};
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, K1, on_gateway, until};

on_gateway! {
    a_guarded_request_takes_no_http2_connection_that_was_idle_for_a_second,
    a_request_that_the_upstream_says_it_has_not_looked_at_is_not_sent,
    a_request_that_the_upstream_has_begun_to_answer_was_sent_whatever_it_says_then,
    a_request_that_waits_for_a_stream_is_not_sent,
    an_upstream_that_does_not_speak_http2_is_sent_nothing,
    a_request_that_gets_its_stream_in_time_is_executed,
}

async fn before(address: SocketAddr, profile: Profile<'_>) -> Subject {
    let url = format!("h2c://{address}");
    Kind::Gateway.start_at(&url, Upstream::closed().await, profile).await
}

fn keyed(key: impl AsRef<[u8]>) -> Ask {
    Ask::post(B1).key(key)
}

async fn a_guarded_request_takes_no_http2_connection_that_was_idle_for_a_second(_: Kind) {
    let peer = Multiplexed::start(Streams::Any).await;
    let t = before(peer.address, D).await;
    let mut client = t.connect().await;
    for n in 0..10 {
        client.send(&keyed(format!("quick-{n}"))).await.unwrap().fresh(201);
    }
    assert_eq!(peer.connections(), 1);
    sleep(Duration::from_millis(1100)).await;
    client.send(&keyed("later")).await.unwrap().fresh(201);
    assert_eq!(peer.connections(), 2);
    sleep(Duration::from_millis(1100)).await;
    client.send(&Ask::bare("GET", "/t")).await.unwrap().fresh(201);
    assert_eq!(peer.connections(), 2, "a safe request takes it");
}

/// As an upstream does that is about to stop: it answers the first request, takes the second one, and says
/// that the first was its last.
async fn a_request_that_the_upstream_says_it_has_not_looked_at_is_not_sent(_: Kind) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let t = before(listener.local_addr().unwrap(), D).await;
    let mut server = JoinSet::new();
    server.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // The gateway may leave first.
            let _ = answer_one_and_go_away(stream).await;
        }
    });
    let mut client: Connection = t.connect().await;
    client.send(&keyed("first")).await.unwrap().fresh(200);
    let refused = client.send(&keyed(K1)).await.unwrap();
    refused.problem(503, "upstream_unreachable");
    client.send(&keyed(K1)).await.unwrap().fresh(200);
}

/// An interim answer, and then the word that the request was never looked at: one of the two is not true.
// threat K30
async fn a_request_that_the_upstream_has_begun_to_answer_was_sent_whatever_it_says_then(_: Kind) {
    let hints = frame(HEADERS, END_HEADERS, 1, &[&[8, 3], &b"103"[..]].concat());
    let refused = frame(RST_STREAM, 0, 1, &[0, 0, 0, REFUSED_STREAM]);
    let go_away = frame(GO_AWAY, 0, 0, &[0; 8]);
    for (then, is_sent) in [
        (vec![refused.clone()], false),
        (vec![go_away.clone()], false),
        (vec![hints.clone(), refused], true),
        (vec![hints, go_away], true),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let t = before(listener.local_addr().unwrap(), D).await;
        let mut server = JoinSet::new();
        let told = then.clone();
        server.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // The gateway may leave first.
                let _ = say_after_the_first(stream, &told).await;
            }
        });
        let answer = t.post(K1, B1).await;
        match is_sent {
            true => answer.problem(502, "idempotency_outcome_unknown"),
            false => answer.problem(503, "upstream_unreachable"),
        };
    }
}

/// Says this when a request has come, and leaves.
async fn say_after_the_first(mut stream: TcpStream, told: &[Vec<u8>]) -> std::io::Result<()> {
    stream.read_exact(&mut [0; "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await?;
        match (head[3], head[4]) {
            (SETTINGS, 0) => stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            (DATA, flags) if flags & END_STREAM != 0 => break,
            _ => {}
        }
    }
    for frame in told {
        stream.write_all(frame).await?;
        sleep(Duration::from_millis(20)).await;
    }
    stream.shutdown().await
}

async fn answer_one_and_go_away(mut stream: TcpStream) -> std::io::Result<()> {
    stream.read_exact(&mut [0; "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await?;
        let (kind, flags, id) = (head[3], head[4], head[8]);
        match (kind, id) {
            (SETTINGS, _) if flags == 0 => {
                stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?;
            }
            // The end of the first request's body: 200 without a body.
            (DATA, 1) if flags & END_STREAM != 0 => {
                stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0x88])).await?;
            }
            (HEADERS, 3) => {
                stream.write_all(&frame(GO_AWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).await?;
                return stream.shutdown().await;
            }
            _ => {}
        }
    }
}

fn frame(kind: u8, flags: u8, id: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, id], payload].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: u8 = 7;

/// The first request has the only stream and is never answered; those behind it never leave the gateway.
async fn a_request_that_waits_for_a_stream_is_not_sent(_: Kind) {
    let peer = Multiplexed::start(Streams::OneThatHangs).await;
    let t = before(peer.address, &[Set::UpstreamTimeoutMs(2000)]).await;
    // One connection of the client: one thread of the gateway, and so one connection to the upstream.
    let client = t.http2().await;
    let first = tokio::spawn(client.clone().send(keyed("first")));
    until("the first request", || peer.executions() == 1).await;
    let queued = (0..3).map(|n| client.clone().send(keyed(format!("queued-{n}"))));
    for answer in join_all(queued).await {
        answer.problem(503, "upstream_unreachable");
    }
    first.await.unwrap().problem(504, "idempotency_outcome_unknown");
    assert_eq!(peer.executions(), 1);
}

async fn an_upstream_that_does_not_speak_http2_is_sent_nothing(_: Kind) {
    let (silent, _server) = silent().await;
    let http1 = Peer::start(PATIENT).await;
    for address in [silent, http1.address] {
        let t = before(address, &[Set::UpstreamTimeoutMs(800)]).await;
        for _ in 0..2 {
            t.post(K1, B1).await.problem(503, "upstream_unreachable");
        }
    }
}

async fn a_request_that_gets_its_stream_in_time_is_executed(_: Kind) {
    let peer = Multiplexed::start(Streams::One).await;
    let t = before(peer.address, D).await;
    let client = t.http2().await;
    let many = (0..20).map(|n| client.clone().send(keyed(format!("many-{n}"))));
    for answer in join_all(many).await {
        answer.fresh(201);
    }
    assert_eq!((peer.connections(), peer.executions()), (1, 20));
}
