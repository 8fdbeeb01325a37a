//! Sinks that are away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::lab::{Book, Does, Lab, quick};

// R137: three seconds without the sink.
#[tokio::test]
async fn an_outage_loses_nothing_and_uses_up_no_attempt() {
    let lab = Lab::start().await;
    let is_away = Arc::new(AtomicBool::new(true));
    let answer = is_away.clone();
    let book = Book::new(move |_| match answer.load(Ordering::Relaxed) {
        true => Does::BeAway,
        false => Does::Take,
    });
    let relay = lab.relay(book.clone(), quick().with_attempts_max(1)).await;
    for number in 0..10 {
        lab.add("t", Some("k"), &number.to_string()).await;
        lab.add("t", None, "any").await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    lab.until("SELECT count(*) > 0 FROM onlyonce.outbox WHERE error = 'nobody is there'", "t")
        .await;
    assert_eq!(
        lab.sql("SELECT count(*), max(attempts), count(parked_at) FROM onlyonce.outbox"),
        "20|0|0"
    );
    assert!(book.payloads().is_empty());
    is_away.store(false, Ordering::Relaxed);
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    let keyed: Vec<_> = book.payloads().into_iter().filter(|payload| payload != "any").collect();
    assert_eq!(keyed, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(book.payloads().len(), 20);
}

// A send that does not end is an outage: the message is given back while the lease still holds.
#[tokio::test]
async fn a_send_that_hangs_is_given_up_and_counts_as_an_outage() {
    let lab = Lab::start().await;
    lab.add("t", Some("k"), "1").await;
    let book = Book::new(|_| Does::TakeSilently);
    let relay = lab.relay(book.clone(), quick()).await;
    lab.until("SELECT error FROM onlyonce.outbox", "no answer within half of the lease").await;
    assert_eq!(lab.sql("SELECT attempts FROM onlyonce.outbox"), "0");
    relay.kill().await;
}

#[tokio::test]
async fn a_send_that_hangs_does_not_prolong_an_outage() {
    let lab = Lab::start().await;
    lab.add("t", Some("a"), "hangs").await;
    let was_away = AtomicBool::new(false);
    let book = Book::new(move |message| match &message.payload[..] {
        b"hangs" => Does::TakeSilently,
        _ if was_away.swap(true, Ordering::Relaxed) => Does::Take,
        _ => Does::BeAway,
    });
    let relay = lab.relay(book.clone(), quick().with_lease(Duration::from_secs(600))).await;
    book.arrived.notified().await;
    lab.add("t", Some("b"), "1").await;
    lab.add("t", Some("b"), "2").await;
    book.until_taken(3).await;
    assert_eq!(book.payloads(), ["hangs", "1", "2"]);
    relay.kill().await;
}
