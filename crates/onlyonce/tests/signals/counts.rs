//! Counts and latencies.

use std::time::Duration;

use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use onlyonce::policy::{InFlight, KeyNeed, Recovery};
use onlyonce::scope::Principal;
use onlyonce::{Failure, Operation, Outcome, Policy};

use crate::faults::app::{AnswerBody, Handler, answered, charge_with, created, send};
use crate::faults::lab::{Lab, gated};
use crate::faults::scripted::{Act, Call};
use crate::faults::{soon, until};

#[tokio::test]
async fn a_request_without_a_key_on_a_guarded_method_is_counted() {
    let lab = Lab::new(Policy::default());
    let unkeyed = Request::post("http://shop.test/charges").body(Full::from("{}")).unwrap();
    assert_eq!(send(&lab.app, unkeyed).await.status, 201);
    let read = Request::get("http://shop.test/charges").body(Full::from("")).unwrap();
    send(&lab.app, read).await;
    assert_eq!((lab.once.counts().unkeyed, lab.once.counts().refused), (1, 0));
}

#[tokio::test]
async fn a_request_that_is_refused_before_a_claim_is_counted() {
    let policy = Policy::default().with_key(KeyNeed::Required).with_request_bytes_max(8);
    let lab = Lab::new(policy);
    let missing = Request::post("http://shop.test/charges").body(Full::from("{}")).unwrap();
    assert_eq!(send(&lab.app, missing).await.status, 400);
    assert_eq!(send(&lab.app, charge_with("too-large", Full::from("123456789"))).await.status, 413);
    let counts = lab.once.counts();
    assert_eq!((counts.refused, counts.unkeyed, counts.executed), (2, 0, 0));
}

#[tokio::test]
async fn a_duplicate_that_waits_is_counted() {
    let policy = Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(60)));
    let (lab, gate) = gated(policy);
    let first = lab.begin(KEY).await;
    let second = crate::faults::app::send_apart(&lab.app, KEY);
    until("the duplicate to wait", || async { lab.once.counts().waited == 1 }).await;
    gate.open();
    assert!(soon("the first", first).await.unwrap().is_fresh());
    assert!(soon("the duplicate", second).await.unwrap().is_replay());
    assert_eq!(lab.once.counts().waited, 1);
}

#[tokio::test]
async fn an_operation_that_is_begun_again_is_counted_as_a_takeover() {
    let recovery = Recovery::Redrive { within: Duration::from_secs(3_600) };
    let fails = Handler::new(|_| async { Err("no answer".into()) });
    let lab = Lab::with(fails, Policy::default().with_recovery(recovery));
    lab.send(KEY).await;
    assert_eq!(lab.once.counts().takeovers, 0);
    lab.send(KEY).await;
    assert_eq!((lab.once.counts().takeovers, lab.executed()), (1, 2));
}

#[tokio::test]
async fn a_lease_that_is_lost_while_its_operation_runs_is_counted_once() {
    let (lab, gate) = gated(Policy::default().with_lease(LEASE));
    let first = lab.begin(KEY).await;
    lab.reap().await;
    let renewed = lab.store.made(Call::Renew);
    until("more renewals", || async { lab.store.made(Call::Renew) >= renewed + 4 }).await;
    assert_eq!(lab.once.counts().renewals_lost, 1);
    gate.open();
    soon("the owner", first).await.unwrap();
}

#[tokio::test]
async fn operations_that_end_while_they_are_renewed_lose_no_lease() {
    let (lab, gate) = gated(Policy::default().with_lease(LEASE));
    let first = lab.begin(KEY).await;
    let settled = crate::faults::app::Gate::default();
    lab.store.next(Call::Settle, 1, Act::Wait(settled.clone()));
    gate.open();
    let renewed = lab.store.made(Call::Renew);
    until("a renewal", || async { lab.store.made(Call::Renew) > renewed }).await;
    settled.open();
    assert!(soon("the owner", first).await.unwrap().is_fresh());
    assert_eq!(lab.once.counts().renewals_lost, 0);
}

#[tokio::test]
async fn an_outcome_that_the_store_takes_at_the_third_try_is_one_retried_settle() {
    let lab = Lab::new(Policy::default());
    lab.store.next(Call::Settle, 2, Act::NotDone);
    assert!(lab.send(KEY).await.is_fresh());
    assert_eq!(lab.once.counts().settles_retried, 1);
}

#[tokio::test]
async fn latencies_are_told_by_call_and_by_route() {
    let lab = Lab::new(Policy::default().with_route("charges"));
    lab.send(KEY).await;
    lab.send(KEY).await;
    let latencies = lab.once.latencies();
    let call = |name| latencies.store_calls.iter().find(|call| call.call == name).unwrap();
    assert_eq!((call("claim").latency.count(), call("swap").latency.count()), (2, 1));
    assert_eq!(
        latencies.store().count(),
        latencies.store_calls.iter().map(|c| c.latency.count()).sum::<u64>()
    );
    assert_eq!((latencies.handler.count(), latencies.request.count()), (1, 2));
    let by_route = lab.once.latencies_by_route();
    let (_, charges) = by_route.iter().find(|(route, _)| &**route == "charges").unwrap();
    assert_eq!((charges.handler.count(), charges.request.count()), (1, 2));
}

#[tokio::test]
async fn a_replay_from_the_cache_counts_as_a_request_and_calls_no_store() {
    let lab = Lab::bounded(Handler::counting(), Policy::default(), onlyonce::Limits::default());
    lab.send(KEY).await;
    let before = lab.once.latencies().store_calls[0].latency.count();
    assert!(lab.send(KEY).await.is_replay());
    let latencies = lab.once.latencies();
    assert_eq!((latencies.request.count(), latencies.store_calls[0].latency.count()), (2, before));
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_down_until_it_answers() {
    let lab = Lab::new(Policy::default());
    assert!(lab.once.is_store_up());
    for call in [Call::Claim, Call::Load, Call::Scan] {
        lab.store.always(call, Act::NotDone);
    }
    assert_eq!(lab.send(KEY).await.status, 503);
    assert!(!lab.once.is_store_up());
    let failed: u64 = lab.once.latencies().store_calls.iter().map(|call| call.failed).sum();
    assert!(failed >= 1);
    for call in [Call::Claim, Call::Load, Call::Scan] {
        lab.store.always(call, Act::Do);
    }
    assert!(lab.send(KEY).await.is_fresh());
    assert!(lab.once.is_store_up());
}

#[tokio::test]
async fn the_lag_of_the_sweep_starts_again_when_a_sweep_has_ended() {
    let limits = crate::faults::lab::limits().with_sweep(Duration::from_millis(20), 100);
    let lab = Lab::scripted(Handler::counting(), Policy::default(), limits, |store| {
        store.always(Call::Sweep, Act::NotDone);
    });
    lab.clock.pass(Duration::from_secs(3_600));
    until("a sweep that fails", || async { lab.store.made(Call::Sweep) >= 2 }).await;
    assert!(lab.once.sweep_lag() >= Duration::from_secs(3_600));
    lab.store.always(Call::Sweep, Act::Do);
    until("a sweep", || async { lab.once.sweep_lag() < Duration::from_secs(60) }).await;
}

/// How a service leaves its caller without an outcome.
fn without_outcome() -> [(&'static str, Handler); 6] {
    let answers = |answer: fn() -> http::Response<AnswerBody>| {
        Handler::new(move |_| async move { Ok(answer()) })
    };
    [
        ("no answer", Handler::new(|_| async { Err("hung up".into()) })),
        ("a panic", Handler::new(|_| async { panic!("as the test wants") })),
        ("no answer in time", Handler::new(|_| std::future::pending())),
        (
            "half of an answer",
            answers(|| {
                let mut half = created("half");
                half.headers_mut().insert("content-length", HeaderValue::from_static("9"));
                half
            }),
        ),
        ("a 502", answers(|| answered(StatusCode::BAD_GATEWAY, "nobody behind me"))),
        (
            "its own word",
            answers(|| {
                let mut unclear = created("perhaps");
                unclear
                    .headers_mut()
                    .insert("idempotency-store", HeaderValue::from_static("unknown"));
                unclear
            }),
        ),
    ]
}

// threat K32
#[tokio::test]
async fn each_caller_that_is_left_without_an_outcome_is_counted_once() {
    let redrive = Recovery::Redrive { within: Duration::from_secs(3_600) };
    for recovery in [Recovery::Hold, Recovery::Fail, Recovery::Release, redrive] {
        for (way, handler) in without_outcome() {
            let policy = Policy::default().with_upstream_timeout(Duration::from_millis(50));
            let lab = Lab::with(handler, policy.with_recovery(recovery));
            lab.send(KEY).await;
            let counts = lab.once.counts();
            assert_eq!((counts.executed, counts.unknown), (1, 1), "{way}, {recovery:?}");
            // Held, or closed for good, or tried again.
            lab.send(KEY).await;
            let counts = lab.once.counts();
            let expected = match recovery {
                Recovery::Fail => (1, 1, 1),
                Recovery::Hold => (1, 2, 0),
                _ => (2, 2, 0),
            };
            let told = (counts.executed, counts.unknown, counts.replayed);
            assert_eq!(told, expected, "{way}, {recovery:?}");
        }
    }
}

// threat K32
#[tokio::test]
async fn an_owner_whose_outcome_the_store_does_not_take_is_counted_once() {
    for handler in [Handler::counting(), Handler::new(|_| async { Err("hung up".into()) })] {
        let lab = Lab::with(handler, Policy::default().with_lease(LEASE));
        lab.store.always(Call::Settle, Act::NotDone);
        let got = lab.send(KEY).await;
        assert_eq!((got.status, lab.once.counts().unknown), (502, 1), "{got:?}");
        lab.store.always(Call::Settle, Act::Do);
        until("the outcome to be stored", || async { lab.once.executing() == 0 }).await;
        assert_eq!(lab.once.counts().unknown, 1);
    }
}

// threat K32
#[tokio::test]
async fn work_without_an_outcome_is_counted_once() {
    let lab = Lab::new(Policy::default());
    let operation = || Operation::new("ship", Principal::of("queue", b"orders"), KEY).unwrap();
    for told in 1..=2 {
        let work = |_| async { Err::<(), _>(Failure::Unknown("hung up".into())) };
        let outcome = lab.once.run(operation(), work).await.unwrap();
        assert!(matches!(outcome, Outcome::Unknown { .. }), "{outcome:?}");
        assert_eq!((lab.once.counts().executed, lab.once.counts().unknown), (1, told));
    }
}

const KEY: &str = "order-4711";
const LEASE: Duration = Duration::from_millis(300);
