//! Requests that a proxy in front has received in early data of TLS 1.3: RFC 8470.

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::Reply;
use crate::subject::Kind;
use crate::{B1, K1, on_both, on_gateway};

on_both! {
    r188_an_unsafe_request_without_a_key_is_too_early,
    r188_a_request_with_a_key_is_taken_and_its_copy_replays,
    r188_a_key_in_the_body_is_one,
    r188_a_service_that_finds_it_too_early_frees_the_key,
}

on_gateway! {
    r188_no_connection_field_removes_early_data,
    r188_a_route_that_observes_leaves_it_to_the_service,
}

fn early(ask: Ask) -> Ask {
    ask.header("Early-Data", "1")
}

// R188
async fn r188_an_unsafe_request_without_a_key_is_too_early(on: Kind) {
    let t = on.start(D).await;
    for method in ["POST", "PATCH", "PUT", "DELETE"] {
        let refused = t.send(&early(Ask::post(B1).method(method))).await;
        assert_eq!(refused.problem(425, "too_early")["retry"], "same-key", "{method}");
    }
    // Section 5.1: doubled or malformed, the field means the same.
    for ask in [early(early(Ask::post(B1))), Ask::post(B1).header("Early-Data", "no")] {
        t.send(&ask).await.problem(425, "too_early");
    }
    assert_eq!(t.u.total(), 0);
    t.send(&Ask::post(B1)).await.fresh(201);
    t.send(&early(Ask::bare("GET", "/t"))).await;
    assert_eq!(t.u.total(), 2, "a safe request passes");
    assert_eq!(t.u.seen()[1].header("early-data"), Some("1"));
}

// R188
async fn r188_a_request_with_a_key_is_taken_and_its_copy_replays(on: Kind) {
    let t = on.start(D).await;
    let ask = early(Ask::post(B1).key(K1));
    let first = t.send(&ask).await.fresh(201);
    assert_eq!(t.u.seen()[0].header("early-data"), Some("1"), "the service is told");
    t.send(&ask).await.replays(&first);
    t.send(&Ask::post(B1).key(K1)).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R188
async fn r188_a_key_in_the_body_is_one(on: Kind) {
    let t = on.start(&[Set::KeyFrom(&["json:/id"])]).await;
    t.send(&early(Ask::post(B1))).await.problem(425, "too_early");
    assert_eq!(t.n(), 0);
    let first = t.send(&early(Ask::post(r#"{"id":"k-1"}"#))).await.fresh(201);
    t.send(&early(Ask::post(r#"{"id":"k-1"}"#))).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R188
async fn r188_a_service_that_finds_it_too_early_frees_the_key(on: Kind) {
    let t = on.start(D).await;
    t.u.plan("/t", [Reply::status(425), Reply::created()]);
    t.send(&early(Ask::post(B1).key(K1))).await.fresh(425);
    t.send(&Ask::post(B1).key(K1)).await.fresh(201);
    assert_eq!(t.n(), 2);
}

// R188
async fn r188_no_connection_field_removes_early_data(on: Kind) {
    let t = on.start(D).await;
    let ask = early(Ask::post(B1)).header("Connection", "early-data");
    t.send(&ask.clone()).await.problem(425, "too_early");
    t.send(&ask.key(K1)).await.fresh(201);
    assert_eq!(t.u.seen()[0].header("early-data"), Some("1"));
}

// R188
async fn r188_a_route_that_observes_leaves_it_to_the_service(on: Kind) {
    let t = on.start(&[Set::Toml("mode = \"observe\"")]).await;
    t.send(&early(Ask::post(B1))).await.fresh(201);
    t.send(&early(Ask::post(B1).method("PUT"))).await.fresh(200);
    assert_eq!(t.u.seen()[0].header("early-data"), Some("1"));
}
