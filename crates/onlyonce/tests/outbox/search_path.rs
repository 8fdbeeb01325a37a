//! Names that a stranger has put where names are looked for.

use onlyonce::outbox::{Parked, ParkedFilter, Relay};
use onlyonce::store::postgres::PostgresStore;
use servers::Postgres;

use crate::lab::{Book, Does, LOOK_PAUSE, Running, WAIT_MAX, begin_with, quick};

// threat K19
#[tokio::test]
async fn a_relay_and_its_operators_call_nothing_of_the_search_path() {
    let postgres = Postgres::start();
    let plain = postgres.database();
    let url = postgres.make_hostile(&plain);
    PostgresStore::open(&url).await.unwrap().close().await;
    let (client, connection) =
        tokio_postgres::connect(&plain, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for payload in ["one", "poison", "three"] {
        begin_with(&client, "t", Some(payload), payload).await;
        client.batch_execute("COMMIT").await.unwrap();
    }
    let decide = |message: &onlyonce::outbox::Message| match &message.payload[..] {
        b"poison" => Does::Refuse,
        _ => Does::Take,
    };
    let (book, options) = (Book::new(decide), quick().with_attempts_max(2));
    let relay = Running::start(Relay::open_with(&url, book.clone(), options).await.unwrap());
    let parked = Parked::open(&url).await.unwrap();
    let listed = async {
        loop {
            match parked.list(ParkedFilter::default(), 0).await.unwrap().pop() {
                Some(message) => return message,
                None => tokio::time::sleep(LOOK_PAUSE).await,
            }
        }
    };
    let message = tokio::time::timeout(WAIT_MAX, listed).await.unwrap();
    assert_eq!(parked.find(&message.id).await.unwrap().unwrap().1, b"poison");
    assert_eq!(parked.status().await.unwrap().topics.len(), 1);
    assert!(parked.retry(&message.id).await.unwrap());
    book.until_taken(2).await;
    relay.shut_down().await;
    parked.discard(&message.id).await.unwrap();
    assert!(!postgres.has_caught(&plain));
}
