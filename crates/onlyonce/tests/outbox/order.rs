//! Order per key, and what a transaction hides.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce::outbox::Relay;

use crate::lab::{Book, Lab, Slow, begin_with, quick};

// R136, R137: 500 messages of 20 keys, and 50 without a key, while they are being written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_relays_ship_each_key_in_order() {
    let lab = Arc::new(Lab::start().await);
    let book = Book::taking();
    let sink = Slow::new(&book);
    let overlaps = sink.overlaps.clone();
    let options = quick().with_attempts_max(1_000).with_in_flight_max(10);
    let options = options.with_lease(Duration::from_secs(30));
    let first = lab.relay(sink.clone(), options.clone()).await;
    let second = lab.relay(sink, options).await;
    let writers: Vec<_> = (0..4).map(|writer| tokio::spawn(write(lab.clone(), writer))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    book.until_taken(550).await;
    first.shut_down().await;
    second.shut_down().await;
    assert_eq!(lab.waiting(), "0");
    assert_eq!(overlaps.load(Ordering::Relaxed), 0);
    let mut of_key = book.numbers_by_key();
    assert_eq!(of_key.remove(&None).unwrap().len(), 50);
    assert_eq!(of_key.len(), 20);
    for (key, numbers) in of_key {
        assert_eq!(numbers, (0..25).collect::<Vec<_>>(), "{key:?}");
    }
}

/// The messages of five keys of its own.
async fn write(lab: Arc<Lab>, writer: usize) {
    let client = lab.session().await;
    for number in 0..25 {
        for key in 0..5 {
            let key = format!("key {}", writer * 5 + key);
            begin_with(&client, "t", Some(&key), &number.to_string()).await;
            client.batch_execute("COMMIT").await.unwrap();
        }
    }
    for number in 0..if writer < 2 { 13 } else { 12 } {
        begin_with(&client, "t", None, &number.to_string()).await;
        client.batch_execute("COMMIT").await.unwrap();
    }
}

// R136, R139
#[tokio::test]
async fn a_message_is_hidden_until_commit_and_gone_after_rollback() {
    let lab = Lab::start().await;
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick()).await;
    let (open, undone) = (lab.session().await, lab.session().await);
    let late = begin_with(&open, "t", Some("a"), "late").await;
    begin_with(&undone, "t", Some("b"), "undone").await;
    // The relay has looked at everything when it has shipped a message that was added after these two.
    lab.add("t", Some("c"), "first").await;
    book.until_taken(1).await;
    assert_eq!(book.payloads(), ["first"]);
    undone.batch_execute("ROLLBACK").await.unwrap();
    open.batch_execute("COMMIT").await.unwrap();
    book.until_taken(2).await;
    lab.add("t", Some("b"), "last").await;
    book.until_taken(3).await;
    assert_eq!(book.payloads(), ["first", "late", "last"]);
    assert_eq!(book.ids()[1], late);
    relay.shut_down().await;
}

#[tokio::test]
async fn a_relay_of_one_topic_leaves_the_others() {
    let lab = Lab::start().await;
    for topic in ["a", "b", "c"] {
        lab.add(topic, Some("k"), topic).await;
        lab.add(topic, None, topic).await;
    }
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick().with_topic("b")).await;
    lab.until("SELECT string_agg(topic, '' ORDER BY topic) FROM onlyonce.outbox", "aacc").await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["b", "b"]);
}

// A key and the end of an in-order lane are told apart, whatever the key is.
#[tokio::test]
async fn keys_may_be_empty_long_or_look_like_an_id() {
    let lab = Lab::start().await;
    let long = "ü".repeat(512);
    let id = lab.add("t", None, "0").await;
    for key in ["", &id, &long, "=", "\u{10ffff}"] {
        lab.add("t", Some(key), key).await;
    }
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick()).await;
    lab.until("SELECT count(*) FROM onlyonce.outbox", "0").await;
    relay.shut_down().await;
    assert_eq!(book.payloads().len(), 6);
}

// More keys than one look visits, all of them waiting, do not hide the one that is due.
#[tokio::test]
async fn a_due_message_is_found_behind_thousands_that_wait() {
    let lab = Lab::start().await;
    let blocked = "INSERT INTO onlyonce.outbox (operation, topic, key, payload, created_at, due_at)
        SELECT gen_random_uuid(), 't', 'k' || n, '', now(), now() + interval '1 hour' FROM generate_series(1, 2500) n";
    lab.sql(blocked);
    lab.sql(&blocked.replace("'k' || n", "'one'"));
    lab.add("t", Some("z"), "due").await;
    let book = Book::taking();
    let relay = lab.relay(book.clone(), quick()).await;
    book.until_taken(1).await;
    relay.shut_down().await;
    assert_eq!(book.payloads(), ["due"]);
}

// The pauses of an idle relay double from 50 ms to a second, and a look at 2,500 keys takes three statements.
#[tokio::test]
async fn a_relay_pauses_while_thousands_of_keys_wait() {
    let lab = Lab::start().await;
    lab.sql(
        "CREATE EXTENSION pg_stat_statements;
         INSERT INTO onlyonce.outbox (operation, topic, key, payload, created_at, due_at)
         SELECT gen_random_uuid(), 't', 'k' || n, '', now(), now() + interval '1 hour' FROM generate_series(1, 2500) n;
         SELECT pg_stat_statements_reset()",
    );
    let options = quick().with_poll_max(Duration::from_secs(1));
    let relay = Relay::open_with(&lab.url, Book::taking(), options).await.unwrap();
    relay.run_until(tokio::time::sleep(Duration::from_secs(2))).await;
    let calls = "SELECT sum(calls) FROM pg_stat_statements
        WHERE query LIKE '%WITH RECURSIVE head%' AND query NOT LIKE '%pg_stat_statements%'";
    let calls: usize = lab.sql(calls).parse().unwrap();
    assert!((3..=24).contains(&calls), "{calls}");
}

#[tokio::test]
async fn a_long_key_costs_no_more_than_a_short_one() {
    let lab = Lab::start().await;
    lab.sql(
        "CREATE EXTENSION pg_stat_statements;
         INSERT INTO onlyonce.outbox (operation, topic, key, payload, created_at, due_at)
         SELECT gen_random_uuid(), 't', 'long', '', now(), now() + interval '1 hour' FROM generate_series(1, 50000);
         SELECT pg_stat_statements_reset()",
    );
    for options in [quick(), quick().with_topic("t")] {
        lab.add("t", Some("z"), "due").await;
        let relay = lab.relay(Book::taking(), options).await;
        lab.until("SELECT count(*) FROM onlyonce.outbox WHERE key = 'z'", "0").await;
        relay.shut_down().await;
    }
    let pages = "SELECT count(*), max((shared_blks_hit + shared_blks_read) / calls) < 100 FROM pg_stat_statements
        WHERE query LIKE '%WITH RECURSIVE head%' AND query NOT LIKE '%pg_stat_statements%'";
    assert_eq!(lab.sql(pages), "2|t");
}
