//! Kafka as the sink: the broker inside librdkafka, read by librdkafka.

use onlyonce::outbox::Kafka;
use servers::KafkaRecord;

use crate::lab::{Lab, quick};

/// `None` where there is no broker to start.
fn broker(topics: &[&str]) -> Option<servers::Kafka> {
    if !servers::Kafka::is_installed() {
        println!("SKIPPED: confluent-kafka is not installed; scripts/test installs it");
        return None;
    }
    Some(servers::Kafka::start(topics))
}

fn values(records: &[KafkaRecord]) -> Vec<&str> {
    records.iter().map(|record| &*record.value).collect()
}

// R136, R137
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_have_the_key_the_id_and_the_partition_of_the_java_client() {
    let Some(kafka) = broker(&["shop.charges"]) else { return };
    let lab = Lab::start().await;
    let keys = ["acct_1", "acct_2", "acct_3", "ü", "a-little-bit-longer-string"];
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(lab.add("charges", Some(keys[number % 5]), &number.to_string()).await);
    }
    let sink = Kafka::new(kafka.address()).with_prefix("shop.");
    let relay = lab.relay(sink, quick()).await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    kafka.produce("shop.charges", &keys);
    let records = kafka.records("shop.charges", 15);
    for (at, key) in keys.iter().enumerate() {
        let of_key: Vec<_> =
            records.iter().filter(|record| record.key.as_deref() == Some(key)).cloned().collect();
        assert_eq!(values(&of_key), [&*at.to_string(), &*(at + 5).to_string(), ""], "{key}");
        // The third was produced by another client.
        assert!(of_key.iter().all(|record| record.partition == of_key[0].partition), "{of_key:?}");
        let headers = format!("onlyonce-message-id={} onlyonce-topic=charges", ids[at]);
        assert_eq!(of_key[0].headers, headers);
    }
}

// R137: no answer counts nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_hangs_or_is_gone_is_an_outage() {
    let Some(mut kafka) = broker(&["charges"]) else { return };
    let lab = Lab::start().await;
    let relay = lab.relay(Kafka::new(kafka.address()), quick().with_attempts_max(1)).await;
    lab.add("charges", Some("k"), "1").await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    kafka.pause();
    lab.add("charges", Some("k"), "2").await;
    lab.add("charges", Some("k"), "3").await;
    lab.until("SELECT count(error), max(attempts) FROM onlyonce.outbox", "1|0").await;
    kafka.resume();
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    // A record whose answer was lost is produced again, before the next of its key.
    let records = kafka.records("charges", 3);
    let mut first_deliveries = values(&records);
    first_deliveries.dedup();
    assert_eq!(first_deliveries, ["1", "2", "3"]);
    kafka.kill();
    lab.add("charges", Some("k"), "4").await;
    lab.until("SELECT count(error), max(attempts) FROM onlyonce.outbox", "1|0").await;
    relay.shut_down().await;
    assert_eq!(lab.waiting(), "1");
}

// threat J10
#[tokio::test]
async fn a_topic_that_is_not_there_refuses_its_messages_alone() {
    let Some(kafka) = broker(&["charges"]) else { return };
    let lab = Lab::start().await;
    lab.add("missing", Some("k"), "1").await;
    lab.add("charges", None, "2").await;
    let relay = lab.relay(Kafka::new(kafka.address()), quick().with_attempts_max(2)).await;
    lab.until("SELECT topic, attempts, parked_at IS NOT NULL FROM onlyonce.outbox", "missing|2|t")
        .await;
    relay.shut_down().await;
    assert_eq!(lab.sql("SELECT error FROM onlyonce.outbox"), "there is no topic \"missing\"");
    let records = kafka.records("charges", 1);
    assert_eq!((records[0].key.as_deref(), &*records[0].value), (None, "2"));
}
