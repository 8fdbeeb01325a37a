//! `redact`: values of an answer that are never stored.

use crate::profile::Set;
use crate::reply::Reply;
use crate::subject::Kind;
use crate::{B1, B2, K1, K2, on_both};

on_both! {
    r185_the_first_caller_gets_the_secret_and_a_retry_gets_null,
    r185_what_cannot_be_judged_is_not_kept,
}

const MINTED: &str = r#"{"id":"k_1", "api_key":"sk_live_1","owner":{"name":"ann"}}"#;

async fn r185_the_first_caller_gets_the_secret_and_a_retry_gets_null(on: Kind) {
    let t = on.start(&[Set::Redact(&["/api_key", "/owner/phone"])]).await;
    t.u.plan("/t", [Reply::created().body(MINTED)]);
    let first = t.post(K1, B1).await.fresh(201);
    assert_eq!(&first.body[..], MINTED.as_bytes());
    assert_eq!(first.all("etag"), ["\"1\""]);
    for _ in 0..2 {
        let retry = t.post(K1, B1).await;
        assert_eq!((retry.status, retry.all("idempotent-replayed")), (201, vec!["true"]));
        let expected = r#"{"id":"k_1", "api_key":null,"owner":{"name":"ann"}}"#;
        assert_eq!(&retry.body[..], expected.as_bytes());
        assert_eq!(retry.all("content-length"), [expected.len().to_string().as_str()]);
        assert_eq!(retry.all("location"), first.all("location"));
        assert_eq!(retry.all("etag"), [""; 0], "it was that of another body");
    }
    t.post(K1, B2).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 1);
}

async fn r185_what_cannot_be_judged_is_not_kept(on: Kind) {
    let t = on.start(&[Set::Redact(&["/api_key"])]).await;
    let twice = r#"{"api_key":"sk_live_1","api_key":"sk_live_2"}"#;
    let coded = Reply::created().header("Content-Encoding", "x-own").body(MINTED);
    t.u.plan(
        "/t",
        [
            Reply::created().body("api_key=sk_live_1"),
            Reply::created().body(twice),
            coded,
            Reply::status(204).body(""),
        ],
    );
    for key in ["key-1", "key-2", "key-3"] {
        t.post(key, B1).await.fresh(201);
        let retry = t.post(key, B1).await;
        let told = retry.problem(410, "idempotency_response_unavailable");
        assert_eq!(told["original_status"], 201, "{key}");
    }
    let empty = t.post(K2, B1).await.fresh(204);
    t.post(K2, B1).await.replays(&empty);
    assert_eq!(t.n(), 4);
}
