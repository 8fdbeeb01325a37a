//! An outcome that the server holds as unknown: asked about a little, not until the deadline.

use std::time::Duration;

use onlyonce::client::{Doubt, SendOutcome};

use crate::environment::TestTime;
use crate::server::{Act, Server, with};

fn held(status: u16, retry_after: &str) -> Act {
    let headers = vec![
        ("content-type", "application/problem+json".to_owned()),
        ("retry-after", retry_after.to_owned()),
    ];
    let body = "{\"code\":\"idempotency_outcome_unknown\",\"retry\":\"same-key\"}";
    Act::Answer(status, headers, body.to_owned())
}

// R161; threat J3
#[tokio::test]
async fn a_held_unknown_is_not_asked_about_until_the_deadline() {
    for retry_after in ["0", "1", "5"] {
        let time = TestTime::default();
        let server = Server::start(&time, vec![held(409, retry_after); 100]).await;
        let end = time.client().post(&server.url()).send().await.unwrap();
        let SendOutcome::Unknown { doubt, .. } = &end else { panic!("{end:?}") };
        assert_eq!(*doubt, Doubt::HeldUnknown);
        assert!(end.advice().contains("operator"), "{}", end.advice());
        assert!(server.received().len() <= 2, "asked {} times", server.received().len());
        assert!(time.waits().iter().sum::<Duration>() < Duration::from_secs(10));
    }
}

// R155
#[tokio::test]
async fn a_wait_that_does_not_fit_is_not_begun() {
    let time = TestTime::default();
    let server = Server::start(&time, [held(409, "60")]).await;
    let end = time.client().post(&server.url()).send().await.unwrap();
    assert!(end.advice().contains("operator"), "{}", end.advice());
    assert!(time.waits().is_empty());
}

// The first caller hears 504; a retry is what makes a route send it again, or ask the upstream.
#[tokio::test]
async fn the_first_caller_asks_again_and_gets_the_answer_that_was_found_meanwhile() {
    let time = TestTime::default();
    let replay = with(201, "idempotent-replayed", "true");
    let server = Server::start(&time, [held(504, "0"), replay]).await;
    let end = time.client().post(&server.url()).send().await.unwrap();
    assert_eq!(end.name(), "replayed");
}
