//! Outcomes that the store does not take.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use onlyonce::Policy;
use onlyonce::record::StateKind;

use crate::faults::app::{
    Gate, Handler, answered, charge_with, retry_until_ended, send, send_apart,
};
use crate::faults::lab::{Lab, limits};
use crate::faults::scripted::{Act, Call};
use crate::faults::{records, soon, until, until_state};

// threat B1, R31: the key was free in between, and another request has it now
#[tokio::test]
async fn a_request_that_was_not_executed_is_never_told_the_answer_to_another() {
    let busy = || async { Ok(answered(StatusCode::TOO_MANY_REQUESTS, "later")) };
    let first = Lab::with(Handler::new(move |_| busy()), Policy::default());
    let second = first.another(Handler::counting(), Policy::default());
    let gate = Gate::default();
    first.store.next(Call::Release, 1, Act::LoseReply);
    first.store.next(Call::Release, 1, Act::Wait(gate.clone()));
    let refused = send_apart(&first.app, KEY);
    until("the release to be repeated", || async { first.store.made(Call::Release) == 2 }).await;
    let other = charge_with(KEY, Full::<Bytes>::from("{\"amount\":2}"));
    assert!(send(&second.app, other).await.is_fresh());
    gate.open();
    let refused = soon("the first", refused).await.expect("alive");
    refused.assert_problem(422, "idempotency_key_reused");
}

// R80
#[tokio::test]
async fn an_outcome_is_written_again_until_the_store_takes_it() {
    for fault in [Act::LoseCall, Act::LoseReply, Act::NotDone] {
        let lab = Lab::new(Policy::default());
        lab.store.next(Call::Settle, 3, fault);
        let first = lab.send(KEY).await;
        assert!(first.is_fresh(), "{first:?}");
        lab.send(KEY).await.assert_replay_of(&first);
        assert_eq!(lab.executed(), 1);
    }
}

// R80
#[tokio::test]
async fn an_answer_is_given_only_when_a_retry_would_get_it_too() {
    let lab = Lab::new(Policy::default());
    let gate = Gate::default();
    lab.store.next(Call::Settle, 1, Act::Wait(gate.clone()));
    let first = lab.begin(KEY).await;
    until("the outcome to be on its way", || async { lab.store.made(Call::Settle) == 1 }).await;
    lab.send(KEY).await.assert_problem(409, "idempotency_in_progress");
    assert!(!first.is_finished());
    gate.open();
    let first = soon("the owner", first).await.expect("alive");
    lab.send(KEY).await.assert_replay_of(&first);
}

// R80, R87
#[tokio::test]
async fn an_outcome_that_the_store_takes_late_is_unknown_to_its_caller_and_replayed_afterwards() {
    let lab = Lab::new(Policy::default().with_lease(LEASE));
    lab.store.always(Call::Settle, Act::LoseCall);
    let first = soon("the first caller", lab.send(KEY)).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    assert_eq!(first.member("retry"), "same-key");
    lab.send(KEY).await.assert_problem(409, "idempotency_in_progress");
    lab.store.always(Call::Settle, Act::Do);
    let retry = retry_until_ended(&lab.app, KEY).await;
    assert!(retry.is_replay());
    assert_eq!((retry.status, &retry.body[..]), (201, &b"parcel 1"[..]));
    assert_eq!(lab.executed(), 1);
}

// R79
#[tokio::test]
async fn an_answer_that_the_store_refuses_is_kept_without_its_body() {
    let lab = Lab::new(Policy::default());
    lab.store.next(Call::Settle, 1, Act::Refuse);
    assert!(lab.send(KEY).await.is_fresh());
    let retry = lab.send(KEY).await;
    retry.assert_problem(410, "idempotency_response_unavailable");
    assert_eq!(retry.member("original_status"), "201");
    assert_eq!(retry.member("retry"), "never");
    assert_eq!(lab.executed(), 1);
}

// R87
#[tokio::test]
async fn an_outcome_that_the_store_refuses_twice_is_unknown() {
    let lab = Lab::new(Policy::default());
    lab.store.next(Call::Settle, 2, Act::Refuse);
    let first = lab.send(KEY).await;
    first.assert_problem(502, "idempotency_outcome_unknown");
    let retry = lab.send(KEY).await;
    retry.assert_problem(409, "idempotency_outcome_unknown");
    assert!(retry.headers.contains_key("retry-after"));
    assert_eq!(lab.executed(), 1);
}

// R80, R87
#[tokio::test]
async fn past_the_bound_of_answers_that_wait_the_oldest_becomes_unknown() {
    let limits = limits().with_unsettled_bytes_max(2 * "parcel 1".len());
    let lab = Lab::bounded(Handler::counting(), Policy::default(), limits);
    lab.store.always(Call::Settle, Act::LoseCall);
    let oldest = lab.begin("order-1").await;
    until("the oldest to wait", || async { lab.store.made(Call::Settle) >= 2 }).await;
    let later = [send_apart(&lab.app, "order-2"), send_apart(&lab.app, "order-3")];
    let oldest = soon("the oldest", oldest).await.expect("alive");
    oldest.assert_problem(502, "idempotency_outcome_unknown");
    assert_eq!(lab.once.counts().unsettled, 1);
    lab.store.always(Call::Settle, Act::Do);
    for call in later {
        assert!(soon("a later one", call).await.expect("alive").is_fresh());
    }
    lab.send("order-1").await.assert_problem(409, "idempotency_outcome_unknown");
    assert!(lab.send("order-2").await.is_replay());
    assert!(lab.send("order-3").await.is_replay());
    assert_eq!(lab.executed(), 3);
    assert_eq!(records(&lab.memory).await.len(), 3);
}

// What was not executed holds no answer: it is never given up for the room of others.
#[tokio::test]
async fn a_release_that_waits_for_the_store_is_not_given_up_for_room() {
    let handler = Handler::new(|request| async move {
        let is_busy = request.headers()["idempotency-key"] == "order-busy";
        let status = if is_busy { 429 } else { 201 };
        let status = StatusCode::from_u16(status).expect("a status");
        Ok(answered(status, "parcel"))
    });
    let limits = limits().with_unsettled_bytes_max("parcel".len());
    let lab = Lab::bounded(handler, Policy::default(), limits);
    lab.store.always(Call::Settle, Act::LoseCall);
    lab.store.always(Call::Release, Act::LoseCall);
    let busy = send_apart(&lab.app, "order-busy");
    until("the release to wait", || async { lab.store.made(Call::Release) >= 2 }).await;
    let others = [send_apart(&lab.app, "order-1"), send_apart(&lab.app, "order-2")];
    until("an answer to be given up", || async { lab.once.counts().unsettled == 1 }).await;
    lab.store.always(Call::Settle, Act::Do);
    lab.store.always(Call::Release, Act::Do);
    assert_eq!(soon("the caller", busy).await.expect("alive").status, 429);
    for other in others {
        soon("another", other).await.expect("alive");
    }
    assert_eq!(lab.send("order-busy").await.status, 429, "it runs again");
    assert_eq!(lab.once.counts().unsettled, 1);
}

// R80, R85: what was not executed is told at once, however long the store takes to hear of it
#[tokio::test]
async fn a_release_that_the_store_does_not_take_does_not_hold_up_its_caller() {
    let handler =
        Handler::new(|_| async { Ok(answered(StatusCode::TOO_MANY_REQUESTS, "slow down")) });
    let lab = Lab::with(handler, Policy::default().with_lease(LEASE));
    lab.store.always(Call::Release, Act::LoseCall);
    let got = soon("the caller", lab.send(KEY)).await;
    assert_eq!(got.status, 429);
    lab.store.always(Call::Release, Act::Do);
    until_state(&lab.memory, None).await;
}

// R87
#[tokio::test]
async fn an_unknown_outcome_that_the_store_does_not_take_does_not_hold_up_its_caller() {
    let handler = Handler::new(|_| async { Err("the line is dead".into()) });
    let lab = Lab::with(handler, Policy::default().with_lease(LEASE));
    lab.store.always(Call::MarkUnknown, Act::LoseCall);
    let got = soon("the caller", lab.send(KEY)).await;
    got.assert_problem(502, "idempotency_outcome_unknown");
    lab.store.always(Call::MarkUnknown, Act::Do);
    until_state(&lab.memory, Some(StateKind::Unknown)).await;
}

const KEY: &str = "order-4711";
const LEASE: Duration = Duration::from_millis(300);
