//! Clients that behave: a request each now and then, with a key of its own, and its answer.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::within;

/// The time that 99 of 100 requests stay below. Measured from when a request was due, so that one that is
/// held up counts for those behind it; on a thread of its own, so that the attackers do not hold it up.
pub(crate) async fn p99(at: SocketAddr) -> Duration {
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(within("honest answers", requests(at)))
    });
    let mut took = measured.await.unwrap();
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

async fn requests(at: SocketAddr) -> Vec<Duration> {
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(client(at));
    }
    clients.join_all().await.concat()
}

async fn client(at: SocketAddr) -> Vec<Duration> {
    let stream = TcpStream::connect(at).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut took = Vec::new();
    let mut due = Instant::now();
    for _ in 0..REQUESTS {
        sleep_until(due).await;
        request(&mut sender).await;
        took.push(due.elapsed());
        due += PAUSE;
    }
    took
}

async fn request(sender: &mut SendRequest<Full<Bytes>>) {
    let request = Request::post("/honest")
        .header("host", "shop.example")
        .header("idempotency-key", format!("{:032x}", fastrand::u128(..)))
        .header("content-type", "application/json")
        .body(Full::from("{\"amount\":7998}"))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    body.collect().await.unwrap();
    assert_eq!(head.status, StatusCode::CREATED);
}

const CLIENTS: usize = 8;
const REQUESTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(25);
