//! Messages that a sink refuses, and operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce::outbox::{Parked, ParkedFilter, ParkedMessage, Relay};

use crate::book::{Book, Does, Running, quick};
use crate::lab::{COUNT, Lab};

struct Poisoned {
    lab: Lab,
    book: Book,
    relay: Running,
    /// The sink takes poison now.
    is_mended: Arc<AtomicBool>,
    parked: Parked,
}

impl Poisoned {
    /// Key a: poison, then a2. Key b: b1.
    async fn start(answer: Does) -> (Self, ParkedMessage) {
        let lab = Lab::new();
        let is_mended = Arc::new(AtomicBool::new(false));
        let mended = is_mended.clone();
        let book = Book::new(move |message| match &message.payload[..] {
            b"poison" if !mended.load(Ordering::Relaxed) => answer,
            _ => Does::Take,
        });
        let id = lab.add("t", Some("a"), "poison");
        lab.add("t", Some("a"), "a2");
        let relay = lab.relay(book.clone(), quick().with_attempts_max(3)).await;
        lab.until("SELECT count(parked_at) FROM onlyonce_outbox", "1").await;
        lab.add("t", Some("b"), "b1");
        book.until_taken(1).await;
        assert_eq!(book.payloads(), ["b1"]);
        lab.until(COUNT, "2").await;
        let parked = Parked::open_sqlite(lab.path()).await.unwrap();
        let listed = parked.list(ParkedFilter::default(), 0).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].id.as_str(), listed[0].attempts), (&*id, 3));
        (Self { lab, book, relay, is_mended, parked }, listed[0].clone())
    }

    async fn ends_with(self, payloads: &[&str]) {
        self.lab.until(COUNT, "0").await;
        self.relay.shut_down().await;
        assert_eq!(self.book.payloads(), payloads);
    }
}

// R137, threat J10
#[tokio::test]
async fn a_parked_message_blocks_its_key_alone_and_is_shipped_when_an_operator_says_so() {
    let (poisoned, listed) = Poisoned::start(Does::Refuse).await;
    assert_eq!(listed.error, "I do not like it");
    assert_eq!(listed.key.as_deref(), Some("a"));
    let found = poisoned.parked.find(&listed.id).await.unwrap();
    assert_eq!(found, Some((listed.clone(), b"poison".to_vec())));
    assert!(listed.parked_at >= listed.created_at);
    let status = poisoned.parked.status().await.unwrap();
    assert_eq!((status.topics[0].waiting, status.topics[0].parked), (1, 1));
    assert!(status.topics[0].oldest_age.is_some());
    poisoned.is_mended.store(true, Ordering::Relaxed);
    assert!(!poisoned.parked.retry("no id").await.unwrap());
    assert!(poisoned.parked.retry(&listed.id).await.unwrap());
    poisoned.ends_with(&["b1", "poison", "a2"]).await;
}

#[tokio::test]
async fn a_discarded_message_is_gone_and_lets_its_key_go_on() {
    let (poisoned, listed) = Poisoned::start(Does::Refuse).await;
    assert!(poisoned.parked.discard(&listed.id).await.unwrap());
    assert_eq!(poisoned.parked.find(&listed.id).await.unwrap(), None);
    assert!(!poisoned.parked.discard(&listed.id).await.unwrap());
    assert!(!poisoned.parked.retry(&listed.id).await.unwrap());
    poisoned.ends_with(&["b1", "a2"]).await;
}

#[tokio::test]
async fn a_message_that_makes_the_sink_panic_is_parked_and_the_relay_goes_on() {
    let (poisoned, listed) = Poisoned::start(Does::Panic).await;
    assert!(listed.error.contains("panicked"), "{}", listed.error);
    let other = ParkedFilter { topic: Some("t"), key: Some("other") };
    assert_eq!(poisoned.parked.retry_all(other).await.unwrap(), 0);
    assert!(poisoned.parked.list(other, 0).await.unwrap().is_empty());
    let after = poisoned.parked.list(ParkedFilter::default(), listed.position).await.unwrap();
    assert!(after.is_empty());
    poisoned.is_mended.store(true, Ordering::Relaxed);
    let those = ParkedFilter { topic: Some("t"), key: Some("a") };
    assert_eq!(poisoned.parked.retry_all(those).await.unwrap(), 1);
    poisoned.ends_with(&["b1", "poison", "a2"]).await;
}

// A message that is not parked is a relay's, and no operator's.
#[tokio::test]
async fn a_message_that_is_not_parked_is_neither_retried_nor_discarded() {
    let lab = Lab::new();
    let id = lab.add("t", None, "1");
    let parked = Parked::open_sqlite(lab.path()).await.unwrap();
    assert!(!parked.retry(&id).await.unwrap());
    assert!(!parked.discard(&id).await.unwrap());
    assert_eq!(lab.row(COUNT), "1");
}

// The pause doubles with each refusal; meanwhile the rest of the key waits.
#[tokio::test]
async fn a_refused_message_is_tried_again_after_a_pause_that_doubles() {
    let lab = Lab::new();
    lab.add("t", Some("a"), "poison");
    let book = Book::new(|_| Does::Refuse);
    let options = quick().with_retry_pause(Duration::from_secs(100));
    let relay = Relay::open_sqlite_with(lab.path(), book, options).await.unwrap();
    let counts = relay.counts();
    let running = Running::start(relay);
    let pause = "SELECT attempts, (due_at - unixepoch() * 1000 + 5000) / 10000 FROM onlyonce_outbox WHERE lease IS NULL";
    // In tens of seconds; the longest is ten minutes.
    for (attempts, tens) in [(1, 10), (2, 20), (3, 40), (4, 60), (5, 60)] {
        lab.until("SELECT attempts FROM onlyonce_outbox", &attempts.to_string()).await;
        assert_eq!(lab.row(pause), format!("{attempts}|{tens}"));
        lab.sql("UPDATE onlyonce_outbox SET due_at = 0");
    }
    running.shut_down().await;
    assert!(counts.refused() >= 5, "{counts:?}");
}

// Rows that somebody has changed by hand, or made.
#[tokio::test]
async fn odd_counts_of_one_row_stop_no_relay_and_hide_no_parked_message() {
    let lab = Lab::new();
    for number in ["1", "2"] {
        lab.add("t", Some(number), number);
    }
    lab.sql(
        "UPDATE onlyonce_outbox SET attempts = -1, parked_at = 1, due_at = 9223372036854775807",
    );
    let parked = Parked::open_sqlite(lab.path()).await.unwrap();
    assert_eq!(parked.list(ParkedFilter::default(), 0).await.unwrap().len(), 2);
    assert_eq!(parked.retry_all(ParkedFilter::default()).await.unwrap(), 2);
    lab.sql("UPDATE onlyonce_outbox SET attempts = -1 WHERE key = '1'");
    lab.sql("UPDATE onlyonce_outbox SET attempts = 9223372036854775807 WHERE key = '2'");
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick()).await;
    book.until_taken(2).await;
    relay.shut_down().await;
    assert_eq!(lab.row(COUNT), "0");
}
