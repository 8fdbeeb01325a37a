//! Relays that die or lose their lease, sinks and files that are away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::TransactionBehavior;

use crate::book::{Book, Does, quick};
use crate::lab::{COUNT, Lab};

// R136, threat J9: shipped again, with the same id.
#[tokio::test]
async fn a_relay_killed_between_publish_and_mark_leaves_the_message_to_another() {
    let lab = Lab::new();
    let id = lab.add("t", Some("k"), "1");
    lab.add("t", Some("k"), "2");
    let book = Book::new(|_| Does::TakeSilently);
    let doomed = lab.relay(book.clone(), quick()).await;
    book.arrived.notified().await;
    doomed.kill().await;
    assert_eq!(book.payloads(), ["1"]);
    let relay = lab.relay(book.and(|_| Does::Take), quick()).await;
    book.until_taken(3).await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["1", "1", "2"]);
    assert_eq!(book.ids()[..2], [id.clone(), id]);
    assert_eq!(lab.row(COUNT), "0");
}

// threat J10: between the publish and the mark of a slow relay another one has leased the message.
#[tokio::test]
async fn a_message_is_not_deleted_by_a_relay_whose_lease_is_gone() {
    let lab = Lab::new();
    lab.add("t", Some("k"), "1");
    let book = Book::new(|_| Does::TakeAtGate);
    let relay = lab.relay(book.clone(), quick().with_lease(Duration::from_secs(60))).await;
    book.arrived.notified().await;
    lab.sql("UPDATE onlyonce_outbox SET lease = randomblob(16)");
    book.gate.notify_one();
    book.until_taken(1).await;
    // The relay has marked the first message before it ships a second one.
    lab.add("t", Some("other"), "2");
    book.arrived.notified().await;
    assert_eq!(lab.row(COUNT), "2");
    book.gate.notify_one();
    lab.until("SELECT group_concat(CAST(payload AS TEXT)) FROM onlyonce_outbox", "1").await;
    // The other relay died too: its lease ends.
    lab.sql("UPDATE onlyonce_outbox SET due_at = 0");
    book.arrived.notified().await;
    book.gate.notify_one();
    lab.until(COUNT, "0").await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["1", "2", "1"]);
}

// R137: three seconds without the sink.
#[tokio::test]
async fn an_outage_loses_nothing_and_uses_up_no_attempt() {
    let lab = Lab::new();
    let is_away = Arc::new(AtomicBool::new(true));
    let answer = is_away.clone();
    let book = Book::new(move |_| match answer.load(Ordering::Relaxed) {
        true => Does::BeAway,
        false => Does::Take,
    });
    let relay = lab.relay(book.clone(), quick().with_attempts_max(1)).await;
    for number in 0..10 {
        lab.add("t", Some("k"), &number.to_string());
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    lab.until("SELECT count(*) FROM onlyonce_outbox WHERE error = 'nobody is there'", "1").await;
    let counted = "SELECT count(*), max(attempts), count(parked_at) FROM onlyonce_outbox";
    assert_eq!(lab.row(counted), "10|0|0");
    is_away.store(false, Ordering::Relaxed);
    lab.until(COUNT, "0").await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
}

// SQLite has one writer at a time: what was sent while another one writes for long is marked when it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_takes_long_makes_no_duplicate() {
    let lab = Lab::new();
    lab.add("t", Some("k"), "1");
    let book = Book::new(|_| Does::TakeAtGate);
    let relay = lab.relay(book.clone(), quick().with_lease(Duration::from_secs(60))).await;
    book.arrived.notified().await;
    let mut db = lab.open();
    let writer = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    book.gate.notify_one();
    book.until_taken(1).await;
    // Longer than the relay waits for the lock.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(lab.row(COUNT), "1");
    writer.commit().unwrap();
    lab.until(COUNT, "0").await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["1"]);
}

#[tokio::test]
async fn a_shutdown_waits_for_what_is_being_sent_and_takes_nothing_new() {
    let lab = Lab::new();
    lab.add("t", Some("k"), "1");
    lab.add("t", Some("k"), "2");
    let book = Book::new(|_| Does::TakeAtGate);
    let relay = lab.relay(book.clone(), quick().with_lease(Duration::from_secs(60))).await;
    book.arrived.notified().await;
    let mut stopping = Box::pin(relay.shut_down());
    assert!(futures_util::poll!(&mut stopping).is_pending());
    book.gate.notify_one();
    stopping.await;
    assert_eq!(book.payloads(), ["1"]);
    assert_eq!(lab.row("SELECT count(*), count(lease) FROM onlyonce_outbox"), "1|0");
}
