//! Relays and servers that die, hang, or are stopped.

use std::time::Duration;

use onlyonce::outbox::Relay;

use crate::lab::{Book, Does, Lab, quick};

// R136: shipped again, with the same id.
#[tokio::test]
async fn a_relay_killed_between_publish_and_mark_leaves_the_message_to_another() {
    let lab = Lab::start().await;
    let id = lab.add("t", Some("k"), "1").await;
    lab.add("t", Some("k"), "2").await;
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
    assert_eq!(lab.waiting(), "0");
}

// A relay that hangs is as good as dead; when it wakes up, it changes nothing that is not its own any more.
#[tokio::test]
async fn the_lease_of_a_relay_that_hangs_ends_and_another_takes_over() {
    let lab = Lab::start().await;
    lab.add("t", Some("k"), "1").await;
    lab.add("t", Some("k"), "2").await;
    let stuck = Book::new(|_| Does::TakeAtGate);
    let hung = Relay::open_with(&lab.url, stuck.clone(), quick()).await.unwrap();
    let mut hung = Box::pin(hung.run());
    tokio::select! {
        () = &mut hung => unreachable!("it runs for ever"),
        () = stuck.arrived.notified() => {}
    }
    // Nobody polls it from here on.
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick()).await;
    book.until_taken(2).await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["1", "2"]);
    lab.add("t", Some("k"), "3").await;
    stuck.gate.notify_one();
    let third = async {
        stuck.arrived.notified().await;
        stuck.gate.notify_one();
        lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    };
    tokio::select! {
        () = &mut hung => unreachable!("it runs for ever"),
        () = third => {}
    }
    assert_eq!(stuck.payloads().last().unwrap(), "3");
}

// Between the publish and the mark of a slow relay another one has leased the message.
#[tokio::test]
async fn a_message_is_not_deleted_by_a_relay_whose_lease_is_gone() {
    let lab = Lab::start().await;
    lab.add("t", Some("k"), "1").await;
    let book = Book::new(|_| Does::TakeAtGate);
    let relay = lab.relay(book.clone(), quick().with_lease(Duration::from_secs(60))).await;
    book.arrived.notified().await;
    lab.sql("UPDATE onlyonce.outbox SET lease = gen_random_uuid()");
    book.gate.notify_one();
    book.until_taken(1).await;
    // The relay has marked the first message before it ships a second one.
    lab.add("t", Some("other"), "2").await;
    book.arrived.notified().await;
    assert_eq!(lab.waiting(), "2");
    book.gate.notify_one();
    lab.until("SELECT string_agg(convert_from(payload, 'UTF8'), '') FROM onlyonce.outbox", "1")
        .await;
    // The other relay died too: its lease ends.
    lab.sql("UPDATE onlyonce.outbox SET due_at = now()");
    book.arrived.notified().await;
    book.gate.notify_one();
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["1", "2", "1"]);
}

#[tokio::test]
async fn a_shutdown_waits_for_what_is_being_sent_and_takes_nothing_new() {
    let lab = Lab::start().await;
    lab.add("t", Some("k"), "1").await;
    lab.add("t", Some("k"), "2").await;
    let book = Book::new(|_| Does::TakeAtGate);
    let relay = lab.relay(book.clone(), quick().with_lease(Duration::from_secs(60))).await;
    book.arrived.notified().await;
    let mut stopping = Box::pin(relay.shut_down());
    assert!(futures_util::poll!(&mut stopping).is_pending());
    book.gate.notify_one();
    stopping.await;
    assert_eq!(book.payloads(), ["1"]);
    assert_eq!(lab.sql("SELECT lease IS NULL FROM onlyonce.outbox"), "t");
}

// R136: what was sent while the database was away is marked when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_dies_and_comes_back_loses_no_message() {
    let mut lab = Lab::start().await;
    for number in 1..=3 {
        lab.add("t", Some("k"), &number.to_string()).await;
    }
    let book = Book::new(|message| match &message.payload[..] {
        b"2" => Does::TakeAtGate,
        _ => Does::Take,
    });
    let relay = lab.relay(book.clone(), quick().with_lease(Duration::from_secs(60))).await;
    book.arrived.notified().await;
    lab.postgres.kill();
    book.gate.notify_one();
    book.until_taken(2).await;
    lab.postgres.start_again();
    lab.add("t", Some("k"), "4").await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["1", "2", "3", "4"]);
}
