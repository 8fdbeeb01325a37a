//! What a relay tells for metrics, and what waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce::outbox::{Parked, Relay};

use crate::lab::{Book, Does, Lab, Running, quick};

// R137
#[tokio::test]
async fn a_relay_counts_what_it_shipped_what_was_refused_and_outages() {
    let lab = Lab::start().await;
    let is_away = Arc::new(AtomicBool::new(true));
    let answer = is_away.clone();
    let book = Book::new(move |message| match &message.payload[..] {
        _ if answer.load(Ordering::Relaxed) => Does::BeAway,
        b"poison" => Does::Refuse,
        _ => Does::Take,
    });
    lab.add("t", Some("a"), "1").await;
    lab.add("t", Some("b"), "poison").await;
    lab.add("t", Some("b"), "behind").await;
    lab.sql("UPDATE onlyonce.outbox SET created_at = now() - interval '1 hour'");
    let options = quick().with_attempts_max(3);
    let relay = Relay::open_with(&lab.url, book.clone(), options).await.unwrap();
    let counts = relay.counts();
    let running = Running::start(relay);
    lab.until("SELECT count(error) FROM onlyonce.outbox", "2").await;
    assert_eq!((counts.shipped(), counts.refused(), counts.parked()), (0, 0, 0));
    // Two messages found the sink away: one outage.
    assert_eq!(counts.outages(), 1);
    assert!(counts.oldest_age() >= Duration::from_secs(3_600), "{counts:?}");
    is_away.store(false, Ordering::Relaxed);
    lab.until("SELECT count(*), count(parked_at) FROM onlyonce.outbox", "2|1").await;
    let status = Parked::open(&lab.url).await.unwrap().status().await.unwrap();
    assert_eq!(status.topics.len(), 1);
    let topic = &status.topics[0];
    assert_eq!((&*topic.topic, topic.waiting, topic.parked), ("t", 1, 1));
    assert!(topic.oldest_age.unwrap() >= Duration::from_secs(3_600), "{topic:?}");
    running.shut_down().await;
    assert_eq!((counts.shipped(), counts.refused(), counts.parked()), (1, 3, 1));
    assert_eq!(counts.outages(), 1);
}
