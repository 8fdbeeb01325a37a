//! Order per key, and what a transaction hides.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::book::{Book, Slow, quick};
use crate::lab::{COUNT, Lab, add, begin, tiered};

// R136, R137, threat J10: two relays that run by mistake share the work, while messages are being written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_ship_each_key_in_order() {
    let rounds = tiered(100);
    let lab = Arc::new(Lab::new());
    let book = Book::taking();
    let sink = Slow::new(&book);
    let overlaps = sink.overlaps.clone();
    let options = quick().with_attempts_max(1_000).with_in_flight_max(10);
    let options = options.with_lease(Duration::from_secs(30));
    let first = lab.relay(sink.clone(), options.clone()).await;
    let second = lab.relay(sink, options).await;
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let lab = lab.clone();
            std::thread::spawn(move || write(&lab, writer, rounds))
        })
        .collect();
    for writer in writers {
        tokio::task::spawn_blocking(|| writer.join()).await.unwrap().unwrap();
    }
    book.until_taken(rounds * 12).await;
    first.shut_down().await;
    second.shut_down().await;
    assert_eq!(lab.row(COUNT), "0");
    assert_eq!(overlaps.load(Ordering::Relaxed), 0);
    let mut of_key = book.numbers_by_key();
    assert_eq!(of_key.remove(&None).unwrap().len(), rounds * 2);
    assert_eq!(of_key.len(), 10);
    for (key, numbers) in of_key {
        assert_eq!(numbers, (0..rounds).collect::<Vec<_>>(), "{key:?}");
    }
}

/// The messages of five keys of its own, and some without a key.
fn write(lab: &Lab, writer: usize, rounds: usize) {
    let mut db = lab.open();
    for number in 0..rounds {
        for key in 0..5 {
            let key = format!("key {}", writer * 5 + key);
            add(&mut db, "t", Some(&key), &number.to_string());
        }
        add(&mut db, "t", None, &number.to_string());
    }
}

// R136, R139
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_is_hidden_until_commit_and_gone_after_rollback() {
    let lab = Lab::new();
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick()).await;
    let mut db = lab.open();
    let undone = begin(&mut db);
    undone.outbox("t", Some("b"), b"undone").unwrap();
    drop(undone);
    let open = begin(&mut db);
    let late = open.outbox("t", Some("a"), b"late").unwrap();
    // Several looks of the relay.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(book.payloads().is_empty());
    open.complete(onlyonce::transaction::Reply::new(http::StatusCode::OK, "done")).unwrap();
    book.until_taken(1).await;
    lab.until(COUNT, "0").await;
    relay.shut_down().await;
    assert_eq!((book.payloads(), book.ids()), (vec!["late".to_owned()], vec![late]));
}

// More lanes than one look visits, and lanes of another topic among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_visits_all_lanes_of_its_topic_and_no_others() {
    let lab = Lab::new();
    let mut db = lab.open();
    let tx = begin(&mut db);
    for number in 0..1_200 {
        tx.outbox("mine", None, number.to_string().as_bytes()).unwrap();
    }
    tx.outbox("more", Some("k"), b"other").unwrap();
    tx.outbox("a", Some("k"), b"other").unwrap();
    tx.complete(onlyonce::transaction::Reply::new(http::StatusCode::OK, "done")).unwrap();
    // All but the last lanes are paused, so that the first look ends without one that is due.
    lab.sql(
        "UPDATE onlyonce_outbox SET due_at = unixepoch() * 1000 + 3600000 WHERE position IN
           (SELECT position FROM onlyonce_outbox WHERE topic = 'mine' ORDER BY lane LIMIT 1150)",
    );
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick().with_topic("mine")).await;
    book.until_taken(50).await;
    lab.until(COUNT, "1152").await;
    lab.sql("UPDATE onlyonce_outbox SET due_at = 0");
    lab.until(COUNT, "2").await;
    relay.shut_down().await;
    assert!(!book.payloads().contains(&"other".to_owned()));
    let all = lab.relay(book.clone(), quick()).await;
    lab.until(COUNT, "0").await;
    all.shut_down().await;
    assert_eq!(book.payloads().len(), 1_202);
}
