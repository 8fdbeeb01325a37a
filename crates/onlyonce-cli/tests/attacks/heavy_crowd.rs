//! A crowd that asks for one key, and asks again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proof::tier::tiered;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::lab::Lab;
use crate::upstream::GATED;

// threat A12, Q19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_duplicates_of_one_key_hold_up_nobody() {
    let lab = Lab::start("in_flight = \"wait\"\nwait = \"60s\"").await;
    let (gateway, crowd) = (lab.gateway.address, tiered(10_000));
    lab.endures(|at| {
        // A plain proxy needs a connection to the upstream for each, so it gets no more than it can open.
        let (path, size) =
            if at == gateway { (GATED, crowd) } else { ("/ungated", crowd.min(4_000)) };
        gather(at, path, size)
    })
    .await;
    lab.upstream.set_gate(true);
    assert_eq!(lab.upstream.count(GATED), 1, "executions of the one key");
}

/// So many callers, on connections that they share.
fn gather(at: SocketAddr, path: &'static str, size: usize) -> JoinSet<()> {
    let connections: Vec<Shared> =
        (0..size.div_ceil(CALLERS_PER_CONNECTION)).map(|_| Shared::default()).collect();
    (0..size)
        .map(|n| caller(at, path, connections[n / CALLERS_PER_CONNECTION].clone(), size))
        .collect()
}

type Sender = SendRequest<Full<Bytes>>;
type Shared = Arc<Mutex<Option<Sender>>>;

/// Asks, and asks again as the answer says: all of them together about 2,000 times a second.
async fn caller(at: SocketAddr, path: &'static str, connection: Shared, size: usize) {
    let pause = Duration::from_secs(1).max(Duration::from_millis(size as u64 / 2));
    loop {
        let sender = connected(at, &connection).await;
        let status = ask(sender, path).await;
        assert!(
            matches!(status, StatusCode::CREATED | StatusCode::CONFLICT),
            "{status} for a duplicate"
        );
        sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
    }
}

async fn connected(at: SocketAddr, connection: &Shared) -> Sender {
    let mut connection = connection.lock().await;
    if let Some(sender) = connection.as_ref() {
        return sender.clone();
    }
    let stream = TcpStream::connect(at).await.unwrap();
    let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (sender, driver) = shaken.unwrap();
    tokio::spawn(driver);
    *connection = Some(sender.clone());
    sender
}

async fn ask(mut sender: Sender, path: &str) -> StatusCode {
    let request = Request::post(format!("http://crowd.test{path}"))
        .header("idempotency-key", "the-one-key-of-the-crowd")
        .header("content-type", "application/json")
        .body(Full::from("{\"amount\":7998}"))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    body.collect().await.unwrap();
    head.status
}

const CALLERS_PER_CONNECTION: usize = 100;
