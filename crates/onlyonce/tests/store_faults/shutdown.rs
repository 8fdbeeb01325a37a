//! Processes that end.

use std::task::Poll;
use std::time::Duration;

use onlyonce::record::StateKind;
use onlyonce::{Left, Policy};

use crate::faults::app::{Gate, Handler, charge, retry_until_ended, send, send_apart};
use crate::faults::lab::{Lab, gated};
use crate::faults::scripted::{Act, Call};
use crate::faults::{soon, state, until, until_state};

// threat A13
#[tokio::test]
async fn a_shutdown_waits_for_what_is_under_way_and_begins_nothing_new() {
    let (lab, gate) = gated(Policy::default());
    let first = lab.begin("order-1").await;
    let shutdown = draining(&lab).await;
    gate.open();
    assert!(soon("the first", first).await.expect("alive").is_fresh());
    let left = soon("the shutdown", shutdown).await.expect("alive");
    assert_eq!((left.unknown, left.disowned), (0, 0));
    assert!(lab.another(Handler::counting(), Policy::default()).send("order-1").await.is_replay());
}

// threat A13, R87
#[tokio::test]
async fn what_has_not_ended_at_the_bound_is_unknown_and_never_released() {
    let (lab, gate) = gated(Policy::default());
    let first = lab.begin(KEY).await;
    let left = soon("the shutdown", lab.once.clone().shutdown(SHORT)).await;
    assert_eq!(left.unknown, 1);
    assert_eq!(state(&lab.memory).await, Some(StateKind::Unknown));
    let later = lab.another(Handler::counting(), Policy::default());
    later.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    gate.open();
    assert!(soon("the first", first).await.expect("alive").is_fresh());
    assert!(later.send(KEY).await.is_replay(), "its owner knew the answer");
    assert_eq!((lab.executed(), later.executed()), (1, 0));
}

// threat A13: with nothing under way
#[tokio::test]
async fn a_shutdown_with_nothing_under_way_takes_no_time() {
    let lab = Lab::new(Policy::default());
    assert!(lab.send(KEY).await.is_fresh());
    let shutdown = lab.once.clone().shutdown(LONG);
    // Less than the background thread sleeps between two renewals by the default lease.
    let in_time = tokio::time::timeout(Duration::from_secs(1), shutdown).await;
    assert_eq!(in_time.expect("in time").unknown, 0);
}

// threat A13
#[tokio::test]
async fn a_shutdown_keeps_to_its_bound_although_the_store_is_dead() {
    let (lab, gate) = gated(Policy::default());
    let mut calls = Vec::new();
    for number in 0..20 {
        calls.push(lab.begin(&format!("order-{number}")).await);
    }
    lab.store.always(Call::MarkUnknown, Act::Hang);
    let left = soon("the shutdown", lab.once.clone().shutdown(SHORT)).await;
    assert_eq!(left.unknown, 20);
    gate.open();
    for call in calls {
        assert!(soon("a call", call).await.expect("alive").is_fresh());
    }
}

// threat A13
#[tokio::test]
async fn a_shutdown_keeps_to_its_bound_although_a_dead_tasks_claim_cannot_be_ended() {
    let (lab, _gate) = gated(Policy::default());
    lab.store.always(Call::MarkUnknown, Act::LoseCall);
    let dying = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let app = lab.app.clone();
    dying.spawn(async move { send(&app, charge(KEY)).await });
    until("the handler to be called", || async { lab.executed() == 1 }).await;
    dying.shutdown_background();
    until("the background thread to try", || async { lab.store.made(Call::MarkUnknown) >= 2 })
        .await;
    let left = soon("the shutdown", lab.once.clone().shutdown(SHORT)).await;
    assert_eq!(left.unknown, 1);
    lab.store.always(Call::MarkUnknown, Act::Do);
    until_state(&lab.memory, Some(StateKind::Unknown)).await;
}

// threat A13
#[tokio::test]
async fn a_shutdown_waits_for_a_claim_that_is_on_its_way() {
    let lab = Lab::new(Policy::default());
    assert!(lab.send("order-1").await.is_fresh());
    let gate = Gate::default();
    lab.store.next(Call::Claim, 1, Act::Wait(gate.clone()));
    let late = send_apart(&lab.app, KEY);
    until("the claim to be sent", || async { lab.store.made(Call::Claim) == 2 }).await;
    let shutdown = draining(&lab).await;
    gate.open();
    let left = soon("the shutdown", shutdown).await.expect("alive");
    assert_eq!((left.unknown, left.disowned), (0, 0));
    soon("the late one", late).await.expect("alive").assert_problem(503, "overloaded");
    let later = lab.another(Handler::counting(), Policy::default());
    assert!(later.send(KEY).await.is_fresh(), "the key is free");
    assert_eq!(lab.executed(), 1);
}

/// The last handle is gone while a claim is on its way: the operation is still kept.
// threat A12, B11
#[tokio::test]
async fn an_operation_outlives_every_handle_of_its_engine() {
    let gate = Gate::default();
    let lab = Lab::with(Handler::gated(&gate), Policy::default().with_lease(LEASE));
    let (claim, other) =
        (Gate::default(), lab.another(Handler::counting(), Policy::default().with_lease(LEASE)));
    lab.store.next(Call::Claim, 1, Act::Wait(claim.clone()));
    let first = send_apart(&lab.app, KEY);
    until("the claim to be sent", || async { lab.store.made(Call::Claim) == 1 }).await;
    first.abort();
    let _ = first.await;
    let Lab { store, handler, once, app, .. } = lab;
    drop((once, app));
    // A background thread that would end now has the time to.
    tokio::time::sleep(LEASE / 5).await;
    claim.open();
    until("the handler to be called", || async { handler.executed() == 1 }).await;
    until("two leases to pass", || async { store.made(Call::Renew) >= 6 }).await;
    other.send(KEY).await.assert_problem(409, "idempotency_in_progress");
    gate.open();
    assert!(retry_until_ended(&other.app, KEY).await.is_replay());
    assert_eq!((handler.executed(), other.executed()), (1, 0));
}

/// A shutdown that has begun, and waits.
async fn draining(lab: &Lab) -> tokio::task::JoinHandle<Left> {
    let mut shutdown = Box::pin(lab.once.clone().shutdown(LONG));
    let begun = std::future::poll_fn(|cx| Poll::Ready(shutdown.as_mut().poll(cx))).await;
    assert!(begun.is_pending());
    let shutdown = tokio::spawn(shutdown);
    let claims = lab.store.made(Call::Claim);
    lab.send("new").await.assert_problem(503, "overloaded");
    assert_eq!(lab.store.made(Call::Claim), claims, "nothing new is claimed");
    assert!(!shutdown.is_finished());
    shutdown
}

const KEY: &str = "order-4711";
const LEASE: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);
