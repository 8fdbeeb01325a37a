//! gRPC: its status is in the trailers, and they are replayed as well.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use tokio::task::JoinSet;

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::{Gate, Reply};
use crate::subject::Kind;
use crate::{K1, on_both, tiered, within};

on_both! {
    rep_23, a_refusal_is_a_grpc_status, racing_calls_are_executed_once,
    a_status_that_says_not_executed_frees_the_key,
    a_status_after_a_message_does_not_say_that_nothing_was_executed, an_unavailable_service_leaves_the_outcome_unknown,
}

const MESSAGE: &[u8] = b"\0\0\0\0\x02\x08\x01";

fn call() -> Ask {
    Ask::post(MESSAGE).to("/pay.Pay/Charge").media("application/grpc").header("te", "trailers")
}

fn reply(status: &'static str) -> Reply {
    refusal(status).body(MESSAGE)
}

/// A status without a message.
fn refusal(status: &'static str) -> Reply {
    let reply = Reply::status(200).header("Content-Type", "application/grpc").body("");
    reply.trailer("grpc-status", status)
}

/// That the head of the answer has this status and reason, and nothing follows it.
#[track_caller]
fn assert_told(answer: &Answer, status: &str, reason: &str) {
    assert_eq!((answer.status, answer.body.len()), (200, 0), "{answer:?}");
    assert_eq!(answer.all("content-type"), ["application/grpc"]);
    assert_eq!(answer.all("grpc-status"), [status], "{answer:?}");
    assert!(!answer.all("grpc-message").is_empty());
    let details = STANDARD_NO_PAD.decode(answer.all("grpc-status-details-bin")[0]).unwrap();
    let details = String::from_utf8_lossy(&details).into_owned();
    assert!(details.contains("type.googleapis.com/google.rpc.ErrorInfo"), "{details}");
    assert!(details.contains(reason), "{details}");
}

async fn a_refusal_is_a_grpc_status(on: Kind) {
    let t = Arc::new(on.start(&[Set::Required]).await);
    let gate = Gate::new();
    t.u.plan("/pay.Pay/Charge", [reply("0").behind(&gate)]);
    let missing = t.send_http2(&call()).await;
    assert_told(&missing, "3", "idempotency_key_missing");
    let first = tokio::spawn({
        let t = t.clone();
        async move { t.send_http2(&call().header("idempotency-key", K1)).await }
    });
    crate::until("the first runs", || t.u.count("/pay.Pay/Charge") == 1).await;
    let running = t.send_http2(&call().header("idempotency-key", K1)).await;
    assert_told(&running, "10", "idempotency_in_progress");
    let details = STANDARD_NO_PAD.decode(running.all("grpc-status-details-bin")[0]).unwrap();
    assert!(String::from_utf8_lossy(&details).contains("google.rpc.RetryInfo"));
    let other = Ask::post(&b"\0\0\0\0\x02\x08\x02"[..]).to("/pay.Pay/Charge");
    let other = other.media("application/grpc").header("idempotency-key", K1);
    assert_told(&t.send_http2(&other).await, "9", "idempotency_key_reused");
    gate.open();
    assert_eq!(within("its answer", first).await.unwrap().trailers["grpc-status"], "0");
    assert_eq!(t.u.count("/pay.Pay/Charge"), 1);
}

async fn racing_calls_are_executed_once(on: Kind) {
    let t = Arc::new(on.start(D).await);
    t.u.plan("/pay.Pay/Charge", [reply("0").trailer("grpc-message", "charged")]);
    let mut calls = JoinSet::new();
    // Twenty calls at once on each connection: a listener takes only so many connections at a time.
    for _ in 0..tiered(1_000) / 20 {
        let connection = t.http2().await;
        for _ in 0..20 {
            calls.spawn(connection.clone().send(call().header("idempotency-key", K1)));
        }
    }
    let mut charged = 0;
    while let Some(answer) = within("an answer", calls.join_next()).await {
        let answer = answer.unwrap();
        match answer.trailers.get("grpc-status") {
            Some(status) => {
                assert_eq!((status.as_bytes(), &answer.body[..]), (&b"0"[..], MESSAGE));
                assert_eq!(answer.trailers["grpc-message"], "charged");
                charged += 1;
            }
            None => assert_told(&answer, "10", "idempotency_in_progress"),
        }
    }
    assert!(charged >= 1);
    assert_eq!(t.u.count("/pay.Pay/Charge"), 1);
}

async fn a_status_that_says_not_executed_frees_the_key(on: Kind) {
    for status in ["16", "7"] {
        let t = on.start(D).await;
        t.u.plan("/pay.Pay/Charge", [refusal(status), reply("0")]);
        let call = call().header("idempotency-key", K1);
        assert_eq!(t.send_http2(&call).await.fresh(200).trailers["grpc-status"], status);
        assert_eq!(t.send_http2(&call).await.fresh(200).trailers["grpc-status"], "0");
        assert_eq!(t.u.count("/pay.Pay/Charge"), 2);
    }
}

async fn a_status_after_a_message_does_not_say_that_nothing_was_executed(on: Kind) {
    for status in ["16", "7"] {
        let t = on.start(D).await;
        t.u.plan("/pay.Pay/Charge", [reply(status), reply("0")]);
        let call = call().header("idempotency-key", K1);
        assert_eq!(t.send_http2(&call).await.fresh(200).trailers["grpc-status"], status);
        assert_told(&t.send_http2(&call).await, "2", "idempotency_outcome_unknown");
        assert_eq!(t.u.count("/pay.Pay/Charge"), 1);
    }
}

async fn an_unavailable_service_leaves_the_outcome_unknown(on: Kind) {
    // 8: also said of an answer that is too large, after the call was executed.
    for status in ["14", "8", "4", "1"] {
        let t = on.start(D).await;
        t.u.plan("/pay.Pay/Charge", [reply(status), reply("0")]);
        let call = call().header("idempotency-key", K1);
        assert_eq!(t.send_http2(&call).await.fresh(200).trailers["grpc-status"], status);
        assert_told(&t.send_http2(&call).await, "2", "idempotency_outcome_unknown");
        assert_eq!(t.u.count("/pay.Pay/Charge"), 1);
    }
}

// threat F13
async fn rep_23(on: Kind) {
    let message = b"\0\0\0\0\x02\x08\x01";
    for (status, text) in [("0", ""), ("9", "balance too low")] {
        let t = on.start(D).await;
        let reply =
            Reply::status(200).header("Content-Type", "application/grpc").body(&message[..]);
        t.u.plan(
            "/pay.Pay/Charge",
            [reply.trailer("grpc-status", status).trailer("grpc-message", text)],
        );
        let call = Ask::post(&message[..])
            .to("/pay.Pay/Charge")
            .media("application/grpc")
            .header("te", "trailers")
            .header("idempotency-key", K1);
        let first = t.send_http2(&call).await.fresh(200);
        assert_eq!(first.trailers["grpc-status"], status);
        let again = t.send_http2(&call).await.replays(&first);
        assert_eq!(again.trailers, first.trailers);
        assert_eq!(t.u.count("/pay.Pay/Charge"), 1);
    }
}
