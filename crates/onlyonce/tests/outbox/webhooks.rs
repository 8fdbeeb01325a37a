//! Webhooks as the sink.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode};
use onlyonce::outbox::Webhook;
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::lab::{Lab, quick};
use crate::standard_webhooks::{SECRET, is_taken_by_all};

/// The requests that a receiver got, and the statuses that it answers, one after the other; then 204.
#[derive(Clone, Default)]
struct Receiver {
    requests: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Receiver {
    async fn start(answers: &[u16]) -> (Self, String) {
        let receiver = Self::default();
        receiver.answers.lock().unwrap().extend(answers.iter().rev());
        let app = Router::new().route("/hook", post(receive)).with_state(receiver.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, app).await });
        (receiver, url)
    }

    fn bodies(&self) -> Vec<Bytes> {
        self.requests.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    receiver.requests.lock().unwrap().push((headers, body));
    let answer = receiver.answers.lock().unwrap().pop().unwrap_or(204);
    StatusCode::from_u16(answer).unwrap()
}

// R136, R141: the id stays, and every attempt is signed with its own time. 503 and 429 are outages.
#[tokio::test]
async fn a_message_is_posted_with_its_id_and_a_signature_until_it_is_taken() {
    let (receiver, url) = Receiver::start(&[503, 429]).await;
    let lab = Lab::start().await;
    let id = lab.add("charges", Some("acct_1"), r#"{"paid": 7998}"#).await;
    let sink = Webhook::new(&url, SECRET).unwrap();
    let relay = lab.relay(sink, quick().with_attempts_max(1)).await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    let requests = receiver.requests.lock().unwrap().clone();
    assert_eq!(requests.len(), 3);
    for (headers, body) in requests {
        assert_eq!(headers["webhook-id"], id);
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(&body[..], br#"{"paid": 7998}"#);
        let timestamp = headers["webhook-timestamp"].to_str().unwrap();
        let age =
            std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() - timestamp.parse::<u64>().unwrap();
        assert!(age < 300, "{age}");
        let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", &body].concat();
        let mac = Hmac::<Sha256>::new_from_slice(b"a key of twenty-four byt").unwrap();
        let expected = mac.chain_update(signed).finalize().into_bytes();
        let signature = headers["webhook-signature"].to_str().unwrap().strip_prefix("v1,").unwrap();
        assert_eq!(
            lab.sql(&format!("SELECT encode(decode('{signature}', 'base64'), 'hex')")),
            hex(&expected)
        );
        is_taken_by_all(&headers, std::str::from_utf8(&body).unwrap());
    }
}

#[tokio::test]
async fn a_refusal_of_the_receiver_parks_the_message() {
    let (receiver, url) = Receiver::start(&[422, 410]).await;
    let lab = Lab::start().await;
    lab.add("charges", Some("acct_1"), "1").await;
    let sink = Webhook::new(&url, SECRET).unwrap();
    let relay = lab.relay(sink, quick().with_attempts_max(2)).await;
    lab.until("SELECT attempts, parked_at IS NOT NULL FROM onlyonce.outbox", "2|t").await;
    relay.shut_down().await;
    assert_eq!(lab.sql("SELECT error FROM onlyonce.outbox"), "the receiver answered 410 Gone");
    assert_eq!(receiver.bodies().len(), 2);
}

// threat K24: a receiver that was moved, or whose secret was replaced, while one message is really refused.
#[tokio::test]
async fn a_receiver_that_refuses_every_key_for_a_while_parks_nothing_but_poison() {
    for status in [401, 404] {
        // Enough to park each of the ten heads twenty times.
        let (receiver, url) = Receiver::start(&vec![status; 400]).await;
        let lab = Lab::start().await;
        for number in 0..10 {
            let key = format!("acct_{number}");
            lab.add("charges", Some(&key), "first").await;
            lab.add("charges", Some(&key), "second").await;
        }
        let relay =
            lab.relay(Webhook::new(&url, SECRET).unwrap(), quick().with_attempts_max(2)).await;
        lab.until("SELECT count(error) FROM onlyonce.outbox", "10").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(lab.sql("SELECT count(*), count(parked_at) FROM onlyonce.outbox"), "20|0");
        let asked = receiver.bodies().len();
        assert!((10..400).contains(&asked), "{status}: {asked} requests");
        receiver.answers.lock().unwrap().clear();
        lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
        receiver.answers.lock().unwrap().extend([204, 204, status, status, status]);
        lab.add("charges", Some("acct_1"), "poison").await;
        lab.until("SELECT count(parked_at) FROM onlyonce.outbox", "1").await;
        relay.shut_down().await;
    }
}

// The status has said it. The body breaks off one byte before its end, or never ends.
#[tokio::test]
async fn a_message_is_taken_by_the_status_whatever_becomes_of_the_body() {
    for hangs in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let lab = Lab::start().await;
        lab.add("charges", Some("acct_1"), "first").await;
        lab.add("charges", Some("acct_1"), "second").await;
        let relay = lab.relay(Webhook::new(&url, SECRET).unwrap(), quick()).await;
        let mut held = Vec::new();
        for expected in ["first", "second"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(expected.as_bytes()) {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "{request:?}");
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nnineteen bytes of it";
            stream.write_all(&answer[..answer.len() - 1]).await.unwrap();
            held.extend(hangs.then_some(stream));
        }
        lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
        relay.shut_down().await;
    }
}

// Nobody listens there.
#[tokio::test]
async fn a_receiver_that_is_away_is_an_outage() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    drop(listener);
    let lab = Lab::start().await;
    lab.add("charges", Some("acct_1"), "1").await;
    let sink = Webhook::new(&url, SECRET).unwrap();
    let relay = lab.relay(sink, quick().with_attempts_max(1)).await;
    lab.until(
        "SELECT error LIKE 'the request was not sent%', attempts FROM onlyonce.outbox",
        "t|0",
    )
    .await;
    relay.shut_down().await;
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
