//! Messages that a sink refuses, and operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce::outbox::{Parked, ParkedFilter, ParkedMessage, Relay};

use crate::lab::{Book, Does, Lab, Running, WAIT_MAX, quick};

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
        let lab = Lab::start().await;
        let is_mended = Arc::new(AtomicBool::new(false));
        let mended = is_mended.clone();
        let book = Book::new(move |message| match &message.payload[..] {
            b"poison" if !mended.load(Ordering::Relaxed) => answer,
            _ => Does::Take,
        });
        let id = lab.add("t", Some("a"), "poison").await;
        lab.add("t", Some("a"), "a2").await;
        let relay = lab.relay(book.clone(), quick().with_attempts_max(3)).await;
        lab.until("SELECT count(parked_at) FROM onlyonce.outbox", "1").await;
        lab.add("t", Some("b"), "b1").await;
        book.until_taken(1).await;
        assert_eq!(book.payloads(), ["b1"]);
        let parked = Parked::open(&lab.url).await.unwrap();
        let listed = parked.list(ParkedFilter::default(), 0).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].id.as_str(), listed[0].attempts), (&*id, 3));
        (Self { lab, book, relay, is_mended, parked }, listed[0].clone())
    }

    async fn ends_with(self, payloads: &[&str]) {
        self.lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
        self.relay.shut_down().await;
        assert_eq!(self.book.payloads(), payloads);
    }
}

#[tokio::test]
async fn a_parked_message_blocks_its_key_alone_and_is_shipped_when_an_operator_says_so() {
    let (poisoned, listed) = Poisoned::start(Does::Refuse).await;
    assert_eq!(listed.error, "I do not like it");
    assert_eq!(listed.key.as_deref(), Some("a"));
    let found = poisoned.parked.find(&listed.id).await.unwrap();
    assert_eq!(found, Some((listed.clone(), b"poison".to_vec())));
    assert!(listed.parked_at >= listed.created_at);
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
    assert!(
        poisoned.parked.list(ParkedFilter::default(), listed.position).await.unwrap().is_empty()
    );
    poisoned.is_mended.store(true, Ordering::Relaxed);
    let those = ParkedFilter { topic: Some("t"), key: Some("a") };
    assert_eq!(poisoned.parked.retry_all(those).await.unwrap(), 1);
    poisoned.ends_with(&["b1", "poison", "a2"]).await;
}

// threat J10: a receiver that answers 500 to one message is not away.
#[tokio::test]
async fn a_message_for_which_the_sink_is_always_away_while_it_takes_others_is_parked() {
    let lab = Lab::start().await;
    let book = Book::new(|message| match &message.payload[..] {
        b"poison" => Does::BeAway,
        _ => Does::Take,
    });
    let id = lab.add("t", Some("a"), "poison").await;
    let options = quick().with_attempts_max(2).with_unavailable_max(3);
    let relay = lab.relay(book.clone(), options).await;
    lab.until("SELECT count(error), max(attempts) FROM onlyonce.outbox", "1|0").await;
    for number in 1..WAIT_MAX.as_secs() {
        lab.add("t", Some("b"), &number.to_string()).await;
        book.until_taken(number as usize).await;
        // The poison is due again after half a second.
        tokio::time::sleep(Duration::from_millis(600)).await;
        if lab.sql("SELECT count(parked_at) FROM onlyonce.outbox") == "1" {
            break;
        }
    }
    relay.shut_down().await;
    assert!(book.payloads().len() >= 4, "three times were for nothing: {:?}", book.payloads());
    let row = "SELECT id, attempts, error FROM onlyonce.outbox";
    assert_eq!(lab.sql(row), format!("{id}|2|nobody is there"));
}

// A message that is not parked is a relay's, and no operator's.
#[tokio::test]
async fn a_message_that_is_not_parked_is_neither_retried_nor_discarded() {
    let lab = Lab::start().await;
    let id = lab.add("t", None, "1").await;
    let parked = Parked::open(&lab.url).await.unwrap();
    assert!(!parked.retry(&id).await.unwrap());
    assert!(!parked.discard(&id).await.unwrap());
    assert_eq!(lab.waiting(), "1");
    // Parked by hand, as docs/outbox.md says.
    let page = include_str!("../../../../docs/outbox.md");
    let park = page.split("```sql\n").find(|block| block.starts_with("UPDATE")).unwrap();
    let park = park.split("```").next().unwrap().replace("'ID'", &format!("'{id}'"));
    lab.sql(
        "UPDATE onlyonce.outbox SET lease = gen_random_uuid(), due_at = now() + interval '1 hour'",
    );
    lab.sql(&park);
    assert!(parked.list(ParkedFilter::default(), 0).await.unwrap().is_empty(), "a relay has it");
    lab.sql("UPDATE onlyonce.outbox SET due_at = now()");
    lab.sql(&park);
    let listed = parked.list(ParkedFilter::default(), 0).await.unwrap();
    assert_eq!((&*listed[0].id, &*listed[0].error), (&*id, "parked by NAME: WHY"));
    assert!(parked.retry(&id).await.unwrap());
}

// The rights that docs/outbox.md names are enough, for a relay and for an operator.
#[tokio::test]
async fn a_role_with_few_rights_ships_and_discards() {
    let lab = Lab::start().await;
    lab.sql(
        "CREATE ROLE relay LOGIN; GRANT USAGE ON SCHEMA onlyonce TO relay; GRANT SELECT ON onlyonce.meta TO relay;
         GRANT SELECT, UPDATE, DELETE ON onlyonce.outbox TO relay",
    );
    let url = lab.url.replace("postgres://postgres@", "postgres://relay@");
    lab.add("t", Some("a"), "1").await;
    let id = lab.add("t", Some("b"), "poison").await;
    let book = Book::new(|message| match &message.payload[..] {
        b"poison" => Does::Refuse,
        _ => Does::Take,
    });
    let relay = Relay::open_with(&url, book.clone(), quick().with_attempts_max(1)).await.unwrap();
    let parked =
        async { lab.until("SELECT count(*), count(parked_at) FROM onlyonce.outbox", "1|1").await };
    relay.run_until(parked).await;
    let operator = Parked::open(&url).await.unwrap();
    assert_eq!(operator.list(ParkedFilter::default(), 0).await.unwrap().len(), 1);
    assert!(operator.discard(&id).await.unwrap());
    assert_eq!(book.payloads(), ["1"]);
}

// Rows that somebody has changed by hand, or made.
#[tokio::test]
async fn odd_times_and_counts_of_one_row_stop_no_relay_and_hide_no_parked_message() {
    let lab = Lab::start().await;
    for (number, created_at) in ["now()", "'infinity'", "'-infinity'"].iter().enumerate() {
        let id = lab.add("t", Some(&number.to_string()), &number.to_string()).await;
        lab.sql(&format!(
            "UPDATE onlyonce.outbox SET created_at = {created_at}, attempts = -1 WHERE id = '{id}'"
        ));
    }
    lab.sql("UPDATE onlyonce.outbox SET parked_at = now(), due_at = 'infinity'");
    let parked = Parked::open(&lab.url).await.unwrap();
    let listed = parked.list(ParkedFilter::default(), 0).await.unwrap();
    assert_eq!(listed.len(), 3);
    for message in listed {
        assert!(parked.find(&message.id).await.unwrap().is_some());
    }
    assert_eq!(parked.status().await.unwrap().topics[0].parked, 3);
    assert_eq!(parked.retry_all(ParkedFilter::default()).await.unwrap(), 3);
    assert_eq!(parked.status().await.unwrap().topics[0].waiting, 3);
    lab.sql("UPDATE onlyonce.outbox SET attempts = -1");
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick()).await;
    book.until_taken(3).await;
    relay.shut_down().await;
    assert_eq!(lab.waiting(), "0");
}
