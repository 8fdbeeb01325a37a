//! Clocks that somebody sets, and nodes that stand still.

use std::time::Duration;

use onlyonce::Policy;
use onlyonce::policy::Recovery;
use onlyonce::record::StateKind;
use onlyonce::store::{Maintain, Store};

use crate::faults::app::{Gate, Handler};
use crate::faults::lab::{Lab, action, gated, limits};
use crate::faults::scripted::{Act, Call};
use crate::faults::{records, soon, until, until_state};

// threat B6, I10
#[tokio::test]
async fn a_store_clock_that_jumps_by_a_day_expires_nothing_until_someone_confirms_it() {
    let lab = Lab::new(hourly());
    let first = lab.send(KEY).await;
    lab.clock.jump(DAY);
    lab.send(KEY).await.assert_replay_of(&first);
    until("the store to be told", || is_held(&lab)).await;
    let later = lab.another(Handler::counting(), hourly());
    later.send(KEY).await.assert_replay_of(&first);
    assert_eq!((lab.executed(), later.executed()), (1, 0));
    lab.memory.hold_clock(false).await.expect("confirmed");
    assert!(later.send(KEY).await.is_fresh(), "its hour is over");
}

/// Its next look at the records would be in ten minutes, and it may end before that.
// threat B6
#[tokio::test]
async fn a_jump_is_told_at_once() {
    let policy = Policy::default().with_lease(Duration::from_secs(30 * 60));
    let lab = Lab::new(policy);
    assert!(lab.send("order-1").await.is_fresh());
    lab.clock.jump(DAY);
    assert!(lab.send("order-2").await.is_fresh());
    until("the store to be told", || is_held(&lab)).await;
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
    until("the store to be told", || is_held(&lab)).await;
    let sweeps = lab.store.made(Call::Scan);
    until("more rounds", || async { lab.store.made(Call::Scan) > sweeps + 3 }).await;
    assert_eq!(records(&lab.memory).await.len(), 1);
    assert_eq!(lab.once.counts().swept, 0);
    lab.memory.hold_clock(false).await.expect("confirmed");
    until("the sweep", || async { lab.once.counts().swept == 1 }).await;
}

// threat B6
#[tokio::test]
async fn a_store_clock_that_jumps_by_a_day_lets_no_lease_lapse() {
    let (lab, gate) = gated(hourly());
    let first = lab.begin(KEY).await;
    lab.store.always(Call::Renew, Act::LoseCall);
    lab.clock.jump(DAY);
    until("the store to be told", || is_held(&lab)).await;
    let scans = lab.store.made(Call::Scan);
    until("the reaper to look for two leases", || async { lab.store.made(Call::Scan) > scans + 6 })
        .await;
    assert_eq!(lab.once.counts().reaped, 0);
    lab.send(KEY).await.assert_problem(409, "idempotency_in_progress");
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
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
    assert!(!is_held(&lab).await);
}

async fn is_held(lab: &Lab) -> bool {
    let id = onlyonce::scope::OperationId::from_bytes([0; 16]);
    lab.memory.load(id).await.expect("an answer").clock_held
}

/// Keeps answers for an hour, and has a lease that is short enough to wait for.
fn hourly() -> Policy {
    Policy::default().with_ttl(Duration::from_secs(60 * 60)).with_lease(Duration::from_millis(200))
}

const KEY: &str = "order-4711";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
