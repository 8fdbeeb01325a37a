//! Clocks that somebody sets, and nodes that stand still.

use std::time::Duration;

use onlyonce::policy::Recovery;
use onlyonce::record::StateKind;
use onlyonce::{Limits, Policy};

use crate::faults::app::{Gate, Handler};
use crate::faults::lab::{Lab, action, gated, limits};
use crate::faults::scripted::{Act, Call};
use crate::faults::{records, soon, until, until_state};

// threat B6, I10
#[tokio::test]
async fn a_running_node_whose_store_jumps_ahead_by_a_day_forgets_nothing() {
    let lab = Lab::new(hourly());
    let first = lab.send(KEY).await;
    lab.clock.jump(DAY);
    lab.send(KEY).await.assert_replay_of(&first);
    assert_eq!(lab.executed(), 1);
    assert!(lab.once.clock_ahead_by() > DAY - Duration::from_secs(120));
    assert!(lab.send("order-2").await.is_fresh(), "new keys are served");
    assert!(!lab.send("order-2").await.is_fresh(), "and kept");
}

/// Rule 7: nobody tells a node that starts later. docs/limits.md says so.
// threat B6
#[tokio::test]
async fn a_node_that_starts_after_the_jump_believes_the_store() {
    let lab = Lab::new(hourly());
    assert!(lab.send(KEY).await.is_fresh());
    lab.clock.jump(DAY);
    let later = lab.another(Handler::counting(), hourly());
    assert!(later.send(KEY).await.is_fresh(), "its hour is over");
    assert_eq!(later.once.clock_ahead_by(), Duration::ZERO);
}

// threat B6, I10
#[tokio::test]
async fn a_store_clock_that_jumps_by_a_day_lets_nothing_be_swept() {
    let sweeping = limits().with_sweep(Duration::from_millis(5), 100);
    // A long lease, so that the sweep is the first to ask after the jump.
    let policy = Policy::default().with_ttl(Duration::from_secs(60 * 60));
    let lab = Lab::bounded(Handler::counting(), policy, sweeping);
    assert!(lab.send(KEY).await.is_fresh());
    lab.clock.jump(DAY);
    let sweeps = lab.store.made(Call::Sweep);
    until("more sweeps", || async { lab.store.made(Call::Sweep) > sweeps + 3 }).await;
    assert_eq!(records(&lab.memory).await.len(), 1);
    assert_eq!(lab.once.counts().swept, 0);
    // The time itself comes, an hour later.
    lab.clock.pass(Duration::from_secs(60 * 60));
    until("the sweep", || async { lab.once.counts().swept == 1 }).await;
}

/// The reaper chooses by the store's clock and judges by its own.
// threat B6
#[tokio::test]
async fn a_store_clock_that_jumps_by_a_day_lets_no_lease_lapse_that_is_renewed() {
    let (lab, gate) = gated(hourly());
    let first = lab.begin(KEY).await;
    lab.clock.jump(DAY);
    let scans = lab.store.made(Call::Scan);
    until("the reaper to look for two leases", || async { lab.store.made(Call::Scan) > scans + 6 })
        .await;
    assert_eq!(lab.once.counts().reaped, 0);
    lab.send(KEY).await.assert_problem(409, "idempotency_in_progress");
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
}

// threat B7
#[tokio::test]
async fn a_node_whose_store_jumps_ahead_and_back_recovers() {
    let lab = Lab::new(hourly());
    let first = lab.send(KEY).await;
    lab.clock.jump(DAY);
    lab.send(KEY).await.assert_replay_of(&first);
    lab.clock.jump_back(DAY);
    lab.send(KEY).await.assert_replay_of(&first);
    assert!(lab.send("order-2").await.is_fresh());
    assert_eq!(lab.executed(), 2);
}

/// The wait before a release is counted on the store's clock: a jump must not end it early, while the
/// first owner may still be sending.
// threat B6
#[tokio::test]
async fn a_store_clock_that_jumps_by_a_day_releases_no_unknown_outcome() {
    let gate = Gate::default();
    let policy = hourly().with_recovery(Recovery::Release);
    let lab = Lab::with(Handler::gated(&gate), policy);
    lab.store.always(Call::Renew, Act::LoseCall);
    let first = lab.begin(KEY).await;
    until_state(&lab.memory, Some(StateKind::Unknown)).await;
    lab.clock.jump(DAY);
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    assert_eq!(lab.executed(), 1);
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
}

// threat B3, B6
#[tokio::test]
async fn a_node_that_stood_still_before_it_read_an_answer_does_not_blame_the_stores_clock() {
    let lab = Lab::new(hourly());
    assert!(lab.send("order-1").await.is_fresh());
    let clock = lab.clock.clone();
    let pause = action(move || clock.pass(Duration::from_secs(120)));
    lab.store.next(Call::Claim, 1, Act::DoThen(pause));
    let paused = lab.send("order-2").await;
    paused.assert_problem(503, "overloaded");
    assert!(lab.send("order-3").await.is_fresh());
    let scans = lab.store.made(Call::Scan);
    until("the reaper to look again", || async { lab.store.made(Call::Scan) > scans + 3 }).await;
    assert_eq!(lab.once.clock_ahead_by(), Duration::ZERO);
}

/// The age of a copy in memory counts from before the answer was stored: a store whose clock is set back meanwhile may have
/// forgotten the record long before its copy would expire.
// threat B3, B7
#[tokio::test]
async fn an_answer_that_was_stored_minutes_ago_is_read_from_the_store_and_not_from_memory() {
    let lab = Lab::bounded(Handler::counting(), hourly(), Limits::default());
    let clock = lab.clock.clone();
    let pause = action(move || clock.pass(Duration::from_secs(120)));
    lab.store.next(Call::Settle, 1, Act::LoseReplyThen(pause));
    let first = lab.send(KEY).await;
    assert!(first.is_fresh(), "{first:?}");
    let claims = lab.store.made(Call::Claim);
    lab.send(KEY).await.assert_replay_of(&first);
    assert_eq!(lab.store.made(Call::Claim), claims + 1);
    lab.send(KEY).await.assert_replay_of(&first);
    assert_eq!(lab.store.made(Call::Claim), claims + 1, "what was just read is in memory");
}

/// Keeps answers for an hour, and has a lease that is short enough to wait for.
fn hourly() -> Policy {
    Policy::default().with_ttl(Duration::from_secs(60 * 60)).with_lease(Duration::from_millis(200))
}

const KEY: &str = "order-4711";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
