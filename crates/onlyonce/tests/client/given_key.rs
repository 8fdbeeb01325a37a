//! A key that the caller gives in a header is the operation's key.

use http::{HeaderName, HeaderValue};
use onlyonce::client::{Client, Request, SendError, SendOutcome, Wire};
use onlyonce::key::{Key, KeyRules};

use crate::environment::TestTime;
use crate::server::{Server, answer};

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

fn key(text: &str) -> Key {
    Key::from_text(text, &KeyRules::default()).unwrap()
}

/// The keys that the server saw.
async fn sent(make: impl Fn(&Client, &str) -> Request<Wire>, times: usize) -> Vec<String> {
    let time = TestTime::default();
    let server = Server::start(&time, vec![answer(201); times]).await;
    for _ in 0..times {
        let end = make(&time.client(), &server.url()).send().await.unwrap();
        assert!(matches!(end, SendOutcome::Fresh(_)), "{end:?}");
    }
    let received = server.received();
    received.iter().map(|one| one.header("idempotency-key").unwrap().to_owned()).collect()
}

// R149, R3
#[tokio::test]
async fn a_key_in_a_header_is_the_key_and_never_replaced_by_another() {
    for spelling in ["order-17", "\"order-17\"", " order-17 ", "\"order-17\";v=1"] {
        let keys = sent(|once, url| once.post(url).header(IDEMPOTENCY_KEY, spelling), 2).await;
        assert_eq!(keys, ["order-17", "order-17"], "{spelling}");
    }
    let request = TestTime::default().client().post("http://shop.test/");
    let request = request.header("idempotency-key", "\"order-17\"");
    assert_eq!(request.key(), &key("order-17"));
}

// R149
#[tokio::test]
async fn a_key_that_is_given_twice_must_be_the_same_one() {
    let keys = sent(
        |once, url| {
            let request = once.post(url).with_key(key("order-17"));
            request.header(IDEMPOTENCY_KEY, "order-17").header(IDEMPOTENCY_KEY, "\"order-17\"")
        },
        1,
    )
    .await;
    assert_eq!(keys, ["order-17"]);

    let once = TestTime::default().client();
    let post = || once.post("http://127.0.0.1:1/");
    let wrong = [
        post().with_key(key("a")).header(IDEMPOTENCY_KEY, "b"),
        post().header(IDEMPOTENCY_KEY, "b").with_key(key("a")),
        post().header(IDEMPOTENCY_KEY, "a").header(IDEMPOTENCY_KEY, "b"),
        post().header(IDEMPOTENCY_KEY, ""),
        post().header(IDEMPOTENCY_KEY, "a, b"),
    ];
    for request in wrong {
        let end = request.send().await;
        assert!(matches!(end, Err(SendError::Request(_))), "{end:?}");
    }
}

// R149: two different operations must not have one key.
#[tokio::test]
async fn a_key_for_a_whole_client_is_refused() {
    let name = HeaderName::from_static("idempotency-key");
    let once = TestTime::default().client().with_header(name, HeaderValue::from_static("order-17"));
    let end = once.post("http://127.0.0.1:1/").send().await;
    let Err(SendError::Request(why)) = end else { panic!("{end:?}") };
    assert!(why.contains("each request"), "{why}");
}

#[tokio::test]
async fn the_header_that_was_configured_has_the_key() {
    let time = TestTime::default();
    let server = Server::start(&time, [answer(201)]).await;
    let retries = time.retries().with_key_header(HeaderName::from_static("x-request-id"));
    let request = time.client().with_retries(retries).post(&server.url());
    request.header("X-Request-Id", "order-17").send().await.unwrap();
    assert_eq!(server.received()[0].header("x-request-id"), Some("order-17"));
    assert_eq!(server.received()[0].header("idempotency-key"), None);
}
