//! Events and spans of the library.

use std::time::Duration;

use onlyonce::Policy;
use onlyonce::policy::{InFlight, Recovery};

use crate::faults::app::{Handler, send_apart};
use crate::faults::lab::{Lab, gated, limits};
use crate::faults::scripted::{Act, Call};
use crate::faults::{soon, until};
use crate::log::Log;

#[tokio::test]
async fn claim_execute_settle_and_wait_are_spans_of_one_operation() {
    let log = Log::open();
    let wait = InFlight::Wait(Duration::from_secs(60));
    let (lab, gate) = gated(Policy::default().with_route("spans").with_in_flight(wait));
    let first = lab.begin(KEY).await;
    let second = send_apart(&lab.app, KEY);
    until("the duplicate to wait", || async { lab.once.counts().waited == 1 }).await;
    gate.open();
    soon("the first", first).await.unwrap();
    soon("the duplicate", second).await.unwrap();
    let id = only_id(&lab).await;
    for span in ["claim", "execute", "settle", "wait"] {
        log.until(&["close", &format!("\"name\":\"{span}\""), &id]).await;
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_told_with_its_operation_and_route() {
    let log = Log::open();
    let fails = Handler::new(|_| async { Err("no answer".into()) });
    let lab = Lab::with(fails, Policy::default().with_route("lost"));
    lab.send(KEY).await;
    log.until(&["WARN", "outcome unknown", "\"route\":\"lost\"", &only_id(&lab).await]).await;
}

#[tokio::test]
async fn a_reaped_operation_and_a_lost_lease_are_told() {
    let log = Log::open();
    let policy = Policy::default().with_route("reaped").with_lease(LEASE);
    let (lab, gate) = gated(policy.clone());
    let first = lab.begin(KEY).await;
    let id = only_id(&lab).await;
    // The renewals never arrive, so that the other node finds the lease over.
    lab.store.always(Call::Renew, Act::LoseCall);
    let other = lab.another(Handler::counting(), policy);
    until("the reaper", || async {
        lab.clock.pass(LEASE);
        other.once.counts().reaped + lab.once.counts().reaped == 1
    })
    .await;
    log.until(&["WARN", "reaped", "\"route\":\"reaped\"", &id]).await;
    lab.store.always(Call::Renew, Act::Do);
    log.until(&["WARN", "lease lost", &id]).await;
    gate.open();
    soon("the owner", first).await.unwrap();
}

#[tokio::test]
async fn a_fenced_result_is_told() {
    let log = Log::open();
    let recovery = Recovery::Redrive { within: Duration::from_secs(3_600) };
    let policy = Policy::default().with_route("fenced").with_recovery(recovery);
    let (lab, gate) = gated(policy.clone());
    let first = lab.begin(KEY).await;
    lab.reap().await;
    let other = lab.another(Handler::counting(), policy);
    assert!(other.send(KEY).await.is_fresh());
    gate.open();
    soon("the owner", first).await.unwrap();
    log.until(&["WARN", "fenced", "\"route\":\"fenced\"", &only_id(&lab).await]).await;
}

#[tokio::test]
async fn a_store_that_goes_and_comes_back_is_told_once_each() {
    let log = Log::open();
    let lab = Lab::new(Policy::default());
    for call in [Call::Claim, Call::Load, Call::Scan] {
        lab.store.always(call, Act::NotDone);
    }
    for _ in 0..3 {
        lab.send(KEY).await;
    }
    log.until(&["ERROR", "the store does not answer", "store is unavailable"]).await;
    for call in [Call::Claim, Call::Load, Call::Scan] {
        lab.store.always(call, Act::Do);
    }
    lab.send(KEY).await;
    log.until(&["INFO", "the store answers again"]).await;
    assert_eq!(log.text().matches("the store does not answer").count(), 1);
}

#[tokio::test]
async fn a_settle_that_is_retried_and_one_that_is_given_up_are_told() {
    let log = Log::open();
    let small = limits().with_unsettled_bytes_max(4);
    let lab = Lab::bounded(Handler::counting(), Policy::default().with_lease(LEASE), small);
    lab.store.always(Call::Settle, Act::LoseCall);
    soon("the caller", lab.send(KEY)).await;
    let id = only_id(&lab).await;
    log.until(&["WARN", "did not take the outcome", &id]).await;
    log.until(&["ERROR", "given up", &id]).await;
}

#[tokio::test]
async fn a_store_clock_that_is_set_forward_is_told_and_so_is_its_correction() {
    let log = Log::open();
    let lab = Lab::new(Policy::default());
    lab.send(KEY).await;
    let day = Duration::from_secs(86_400);
    lab.clock.jump(day);
    assert!(lab.send("another").await.is_fresh());
    log.until(&["WARN", "too far ahead"]).await;
    // The time of the store in memory never goes back: it stands still until the right time has come.
    lab.clock.jump_back(day);
    lab.clock.pass(2 * day);
    assert!(lab.send("third").await.is_fresh());
    log.until(&["INFO", "right again"]).await;
}

async fn only_id(lab: &Lab) -> String {
    let (id, _) = crate::faults::records(&lab.memory).await.pop().expect("a record");
    id.to_string()
}

const KEY: &str = "order-4711";
const LEASE: Duration = Duration::from_millis(300);
