//! HTTP/2 streams that are reset without an error code in the middle of a body: hyper takes that for their end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::client::Ask;
use crate::profile::D;
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, K1, on_gateway, until, within};

on_gateway! { an_answer_that_was_reset_is_not_kept, a_request_that_was_reset_is_not_executed }

/// A service over HTTP/2 that executes, answers half a body and resets; how often it did so.
async fn resetting(length: Option<&'static str>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, executed) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let counter = executed.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let counter = counter.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    counter.fetch_add(1, Ordering::SeqCst);
                    let mut head = Response::builder().header("content-type", "application/json");
                    if let Some(length) = length {
                        head = head.header("content-length", length);
                    }
                    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
                    body.send_data(Bytes::from_static(b"{\"id\":\"ch_1\",\"am"), false).unwrap();
                    tokio::spawn(async move {
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                        body.send_reset(h2::Reason::NO_ERROR);
                    });
                }
            });
        }
    });
    (address, executed)
}

// threat: a proxy such as Envoy ends a stream so when its own upstream breaks off.
async fn an_answer_that_was_reset_is_not_kept(on: Kind) {
    for length in [None, Some("5000")] {
        let (address, executed) = resetting(length).await;
        let url = format!("h2c://{address}");
        let t = on.start_at(&url, Upstream::start().await, D).await;
        t.post(K1, B1).await.problem(502, "idempotency_outcome_unknown");
        t.post(K1, B1).await.problem(409, "idempotency_outcome_unknown");
        assert_eq!(executed.load(Ordering::SeqCst), 1);
    }
}

async fn a_request_that_was_reset_is_not_executed(on: Kind) {
    let t = on.start(D).await;
    for length in [None, Some("1000")] {
        send_half(&t, length).await;
    }
    // The whole request, which is another one than its half.
    t.send(&Ask::post("pay bob 1000").key(K1)).await.fresh(201);
    assert_eq!(t.n(), 1);
}

/// Half a body, then a reset, and until the gateway is done with it.
async fn send_half(t: &Subject, length: Option<&str>) {
    let stream = TcpStream::connect(t.address()).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut sender = within("a stream", sender.ready()).await.unwrap();
    let mut head = Request::post("http://api.test/t").header("idempotency-key", K1);
    head = head.header("content-type", "application/json");
    if let Some(length) = length {
        head = head.header("content-length", length);
    }
    let (answer, mut body) = sender.send_request(head.body(()).unwrap(), false).unwrap();
    body.send_data(Bytes::from_static(b"pay bob 10"), false).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    body.send_reset(h2::Reason::NO_ERROR);
    // A stream that was reset has no answer; one more request shows that the gateway has read the reset.
    drop(answer);
    let mut sender = within("another stream", sender.ready()).await.unwrap();
    let again = Request::get("http://api.test/after").body(()).unwrap();
    let (answer, _) = sender.send_request(again, true).unwrap();
    within("an answer", answer).await.unwrap();
    until("the other request", || t.u.count("/after") > 0).await;
    driver.abort();
}
