//! NATS JetStream as the sink.

use std::sync::Arc;

use async_nats::jetstream::{self, stream::Config};
use futures_util::StreamExt;
use onlyonce::outbox::{Message, Nats, Sink, SinkError};
use tokio::sync::Notify;

use crate::lab::{Lab, quick};

/// A server with the stream SHOP, and a connection of the test's own.
struct Shop {
    server: servers::Nats,
    jetstream: jetstream::Context,
}

impl Shop {
    /// `None` where NATS is not installed.
    async fn start(settings: &str) -> Option<Self> {
        if !servers::Nats::is_installed() {
            println!("SKIPPED: NATS is not installed; scripts/test installs it");
            return None;
        }
        let server = servers::Nats::start(settings);
        let client = async_nats::ConnectOptions::new()
            .user_and_password("owner".to_owned(), "owner".to_owned())
            .connect(server.url())
            .await
            .unwrap();
        let jetstream = jetstream::new(client);
        let config = Config {
            name: "SHOP".to_owned(),
            subjects: vec!["shop.>".to_owned()],
            ..Config::default()
        };
        jetstream.create_stream(config).await.unwrap();
        Some(Self { server, jetstream })
    }

    fn sink(&self) -> Nats {
        Nats::new(&self.server.url()).unwrap().with_prefix("shop.")
    }

    /// Subject, id and payload of each message of the stream.
    async fn stored(&self) -> Vec<[String; 3]> {
        let mut stream = self.jetstream.get_stream("SHOP").await.unwrap();
        let last = stream.info().await.unwrap().state.last_sequence;
        let mut stored = Vec::new();
        for sequence in 1..=last {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let id = message.headers.get("Nats-Msg-Id").unwrap().to_string();
            let payload = String::from_utf8(message.payload.to_vec()).unwrap();
            stored.push([message.subject.to_string(), id, payload]);
        }
        stored
    }
}

fn entry(subject: &str, id: &str, payload: &str) -> [String; 3] {
    [subject, id, payload].map(str::to_owned)
}

// R136, R137: killed and started again under the relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_stored_in_order_also_after_nats_was_killed() {
    let Some(mut shop) = Shop::start("").await else { return };
    let lab = Lab::start().await;
    let relay = lab.relay(shop.sink(), quick().with_attempts_max(1)).await;
    let first = lab.add("charges", Some("acct_1"), "1").await;
    let mut expected = vec![entry("shop.charges", &first, "1")];
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    shop.server.kill();
    for number in ["2", "3"] {
        let id = lab.add("charges", Some("acct_1"), number).await;
        expected.push(entry("shop.charges", &id, number));
    }
    lab.until("SELECT count(error), max(attempts) FROM onlyonce.outbox", "1|0").await;
    shop.server.start_again();
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    let last = lab.add("refunds.eu", None, "4").await;
    expected.push(entry("shop.refunds.eu", &last, "4"));
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    assert_eq!(shop.stored().await, expected);
}

// R137: no answer is no success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_an_outage() {
    let Some(shop) = Shop::start("").await else { return };
    let lab = Lab::start().await;
    let relay = lab.relay(shop.sink(), quick().with_attempts_max(1)).await;
    lab.add("charges", Some("k"), "1").await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    shop.server.pause();
    lab.add("charges", Some("k"), "2").await;
    lab.until("SELECT count(error), max(attempts) FROM onlyonce.outbox", "1|0").await;
    shop.server.resume();
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    // Stored once, although it was sent more than once.
    let payloads: Vec<_> = shop.stored().await.into_iter().map(|[.., payload]| payload).collect();
    assert_eq!(payloads, ["1", "2"]);
}

// As a server before 2.11 answers while it replicates an earlier publish of the same id.
#[tokio::test]
async fn a_duplicate_that_is_not_stored_yet_is_an_outage() {
    let Some(shop) = Shop::start("").await else { return };
    let client = shop.jetstream.client();
    // No stream takes this subject: the test answers in its place.
    let mut published = client.subscribe("elsewhere.charges").await.unwrap();
    client.flush().await.unwrap();
    let lab = Lab::start().await;
    lab.add("charges", Some("k"), "1").await;
    let sink = Nats::new(&shop.server.url()).unwrap().with_prefix("elsewhere.");
    let relay = lab.relay(sink, quick().with_attempts_max(1)).await;
    let mut answer = async |ack: &'static str| {
        let reply = published.next().await.unwrap().reply.unwrap();
        client.publish(reply, ack.into()).await.unwrap();
    };
    answer(r#"{"stream": "SHOP", "seq": 0, "duplicate": true}"#).await;
    let error = "the stream has not stored the message yet|0";
    lab.until("SELECT error, attempts FROM onlyonce.outbox", error).await;
    answer(r#"{"stream": "SHOP", "seq": 1, "duplicate": true}"#).await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
}

/// Sends, and forgets to say so.
struct Forgetful {
    nats: Nats,
    sent: Arc<Notify>,
}

impl Sink for Forgetful {
    async fn send(&self, message: &Message) -> Result<(), SinkError> {
        self.nats.send(message).await?;
        self.sent.notify_one();
        std::future::pending().await
    }
}

// threat J9: the server itself removes the duplicate. R136
#[tokio::test]
async fn a_message_that_is_published_again_is_stored_once() {
    let Some(shop) = Shop::start("").await else { return };
    let lab = Lab::start().await;
    let id = lab.add("charges", Some("k"), "1").await;
    let sent = Arc::new(Notify::new());
    let doomed = lab.relay(Forgetful { nats: shop.sink(), sent: sent.clone() }, quick()).await;
    sent.notified().await;
    doomed.kill().await;
    assert_eq!(lab.waiting(), "1");
    let relay = lab.relay(shop.sink(), quick()).await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    assert_eq!(shop.stored().await, [entry("shop.charges", &id, "1")]);
}

// threat J10: what only a person can mend is counted and parked, and the others go on. R137
#[tokio::test]
async fn what_the_server_will_not_take_is_parked_with_the_reason() {
    let Some(shop) = Shop::start(LIMITED).await else { return };
    let lab = Lab::start().await;
    lab.add("secret", Some("k"), "denied").await;
    lab.add("charges", Some("large"), &"x".repeat(5_000)).await;
    lab.add("no subject", Some("k"), "x").await;
    let taken = lab.add("charges", Some("k"), "taken").await;
    let sink = shop.sink().with_user("relay", "relay");
    let relay = lab.relay(sink, quick().with_attempts_max(2)).await;
    lab.until("SELECT count(*), count(parked_at), min(attempts) FROM onlyonce.outbox", "3|3|2")
        .await;
    relay.shut_down().await;
    assert_eq!(shop.stored().await, [entry("shop.charges", &taken, "taken")]);
    // Topics that no stream takes.
    lab.sql("DELETE FROM onlyonce.outbox WHERE topic = 'no subject'");
    lab.add("charges", Some("k"), "nowhere").await;
    let sink = Nats::new(&shop.server.url()).unwrap().with_prefix("elsewhere.");
    let sink = sink.with_user("relay", "relay");
    let relay = lab.relay(sink, quick().with_attempts_max(2)).await;
    lab.until("SELECT count(parked_at) FROM onlyonce.outbox", "3").await;
    relay.shut_down().await;
    let errors = lab.sql("SELECT string_agg(error, E'\\n' ORDER BY position) FROM onlyonce.outbox");
    let errors: Vec<_> = errors.lines().collect();
    assert!(
        errors[0].contains("Permissions Violation for Publish to \"shop.secret\""),
        "{errors:?}"
    );
    assert!(errors[1].contains("limit of 4096 exceeded"), "{errors:?}");
    assert_eq!(errors[2], "no stream takes the subject elsewhere.charges");
}

const LIMITED: &str = "
max_payload: 4096
authorization { users = [
  { user: owner, password: owner },
  { user: relay, password: relay, permissions: { publish: { deny: \"shop.secret\" } } }
] }";
