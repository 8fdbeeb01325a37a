//! Redis Streams as the sink.

use onlyonce::outbox::RedisStreams;
use servers::Redis;

use crate::lab::{Lab, quick};

async fn entries(redis: &Redis, stream: &str) -> Vec<[Option<String>; 3]> {
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut range = redis::cmd("XRANGE");
    let read: Vec<(String, Vec<String>)> =
        range.arg(stream).arg("-").arg("+").query_async(&mut connection).await.unwrap();
    read.iter()
        .map(|(_, fields)| ["id", "key", "payload"].map(|name| field(fields, name)))
        .collect()
}

/// Names and values alternate.
fn field(fields: &[String], name: &str) -> Option<String> {
    fields.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
}

fn entry(id: &str, key: Option<&str>, payload: &str) -> [Option<String>; 3] {
    [Some(id), key, Some(payload)].map(|text| text.map(str::to_owned))
}

// R136, R137: killed and started again under the relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_entries_in_order_also_after_redis_was_killed() {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let lab = Lab::start().await;
    let sink = RedisStreams::new(&redis.url()).unwrap().with_prefix("shop:");
    let relay = lab.relay(sink, quick().with_attempts_max(1)).await;
    let mut expected =
        vec![entry(&lab.add("charges", Some("acct_1"), "1").await, Some("acct_1"), "1")];
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    redis.kill();
    for number in ["2", "3"] {
        let id = lab.add("charges", Some("acct_1"), number).await;
        expected.push(entry(&id, Some("acct_1"), number));
    }
    lab.until("SELECT count(error) FROM onlyonce.outbox", "1").await;
    redis.start_again();
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    expected.push(entry(&lab.add("charges", None, "4").await, None, "4"));
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    assert_eq!(entries(&redis, "shop:charges").await, expected);
}

#[tokio::test]
async fn a_stream_whose_name_is_taken_refuses_its_messages_alone() {
    let redis = Redis::start(&[]);
    redis.command("SET taken by-a-text");
    let lab = Lab::start().await;
    lab.add("taken", Some("k"), "1").await;
    let id = lab.add("free", Some("k"), "2").await;
    let sink = RedisStreams::new(&redis.url()).unwrap();
    let relay = lab.relay(sink, quick().with_attempts_max(2)).await;
    lab.until("SELECT topic, attempts, parked_at IS NOT NULL FROM onlyonce.outbox", "taken|2|t")
        .await;
    relay.shut_down().await;
    assert_eq!(lab.sql("SELECT error FROM onlyonce.outbox"), "Redis answered WRONGTYPE");
    assert_eq!(entries(&redis, "free").await, [entry(&id, Some("k"), "2")]);
}

// Redis quotes the arguments of a command that it does not know.
#[tokio::test]
async fn an_error_tells_neither_the_key_nor_the_payload() {
    let redis = Redis::start(&["--rename-command", "XADD", "ANOTHER"]);
    let lab = Lab::start().await;
    lab.add("charges", Some("acct_1"), "7998").await;
    let sink = RedisStreams::new(&redis.url()).unwrap();
    let relay = lab.relay(sink, quick().with_attempts_max(1)).await;
    lab.until("SELECT error, attempts FROM onlyonce.outbox", "Redis answered ERR|0").await;
    relay.shut_down().await;
}
