//! Owners that are slow, silent, paused or replaced.

use std::time::Duration;

use onlyonce::Policy;
use onlyonce::policy::Recovery;
use onlyonce::record::StateKind;

use crate::faults::app::{Gate, Handler, created, send_apart};
use crate::faults::lab::{Lab, action, gated};
use crate::faults::scripted::{Act, Call};
use crate::faults::{soon, until, until_state};

// threat B11, R96, R97
#[tokio::test]
async fn an_operation_of_ten_leases_stays_owned() {
    let (owner, gate) = gated(policy());
    let other = owner.another(Handler::counting(), policy());
    let first = owner.begin(KEY).await;
    let ten_leases = 10 * RENEWALS_PER_LEASE;
    until("ten leases to pass", || async { owner.store.made(Call::Renew) >= ten_leases }).await;
    other.send(KEY).await.assert_problem(409, "idempotency_in_progress");
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
    assert_eq!(owner.once.counts().reaped + other.once.counts().reaped, 0);
    assert_eq!((owner.executed(), other.executed()), (1, 0));
}

// threat B10, R96
#[tokio::test]
async fn a_runtime_that_is_blocked_for_two_leases_does_not_lose_the_lease() {
    let handler = Handler::new(|_| async {
        std::thread::sleep(2 * LEASE);
        Ok(created("done"))
    });
    let owner = Lab::with(handler, policy());
    let other = owner.another(Handler::counting(), policy());
    assert!(owner.send(KEY).await.is_fresh());
    assert!(other.send(KEY).await.is_replay());
    assert_eq!(owner.once.counts().reaped + other.once.counts().reaped, 0);
}

// threat B10: one bug must not end the renewal of everybody's leases
#[tokio::test]
async fn a_store_that_panics_now_and_then_does_not_lose_the_lease() {
    let (owner, gate) = gated(policy());
    let other = owner.another(Handler::counting(), policy());
    for call in [Call::Renew, Call::Scan, Call::Settle] {
        owner.store.next(call, 1, Act::Panic);
    }
    let first = owner.begin(KEY).await;
    let two_leases = 2 * RENEWALS_PER_LEASE;
    until("two leases to pass", || async { owner.store.made(Call::Renew) > two_leases }).await;
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
    assert!(other.send(KEY).await.is_replay());
    assert_eq!(owner.once.counts().reaped + other.once.counts().reaped, 0);
    assert_eq!(owner.once.counts().renewals_unsure, 1);
}

// threat B10: a lease that comes into use while the background thread sleeps by a longer one
#[tokio::test]
async fn a_short_lease_is_renewed_although_a_longer_one_was_known_first() {
    let (owner, gate) = gated(Policy::default());
    until("the background thread to sleep by the longer one", || async {
        owner.store.made(Call::Scan) >= 1
    })
    .await;
    let other = owner.another(Handler::counting(), policy());
    let short = owner.handler.guarded(&owner.once, policy());
    let first = send_apart(&short, KEY);
    until("two leases to pass", || async {
        owner.store.made(Call::Renew) >= 2 * RENEWALS_PER_LEASE
    })
    .await;
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
    assert_eq!(owner.once.counts().reaped + other.once.counts().reaped, 0);
}

// threat B3, R99
#[tokio::test]
async fn a_process_paused_between_claim_and_send_sends_nothing() {
    let lab = Lab::new(policy());
    let clock = lab.clock.clone();
    let pause = action(move || clock.pass(LEASE));
    lab.store.next(Call::Claim, 1, Act::DoThen(pause));
    let got = lab.send(KEY).await;
    got.assert_problem(503, "overloaded");
    assert!(got.headers.contains_key("retry-after"));
    assert_eq!(lab.executed(), 0);
    until_state(&lab.memory, None).await;
    assert!(lab.send(KEY).await.is_fresh());
}

// threat B3, R80
#[tokio::test]
async fn a_claim_that_may_not_be_sent_and_cannot_be_released_does_not_hold_up_its_caller() {
    let lab = Lab::new(policy());
    let clock = lab.clock.clone();
    let pause = action(move || clock.pass(LEASE));
    lab.store.next(Call::Claim, 1, Act::DoThen(pause));
    lab.store.always(Call::Release, Act::LoseCall);
    let got = soon("the caller", lab.send(KEY)).await;
    got.assert_problem(503, "overloaded");
    lab.store.always(Call::Release, Act::Do);
    until_state(&lab.memory, None).await;
    assert!(lab.send(KEY).await.is_fresh());
    assert_eq!(lab.executed(), 1);
}

// threat B1, R98
#[tokio::test]
async fn an_owner_that_lost_its_lease_after_it_sent_goes_on_and_settles() {
    let (lab, gate) = gated(policy());
    let first = lab.begin(KEY).await;
    lab.reap().await;
    let renewals = lab.store.made(Call::Renew);
    until("the loss to be noticed", || async { lab.store.made(Call::Renew) > renewals }).await;
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    gate.open();
    let first = soon("the owner", first).await.expect("alive");
    assert!(first.is_fresh());
    lab.send(KEY).await.assert_replay_of(&first);
    assert_eq!(lab.executed(), 1);
}

// threat B11, R97
#[tokio::test]
async fn an_owner_that_was_reaped_while_it_worked_settles_with_the_true_answer() {
    let (lab, gate) = gated(policy());
    lab.store.always(Call::Renew, Act::LoseCall);
    let first = lab.begin(KEY).await;
    until_state(&lab.memory, Some(StateKind::Unknown)).await;
    until("the reaper to count it", || async { lab.once.counts().reaped == 1 }).await;
    assert!(lab.once.counts().renewals_unsure > 0);
    lab.send(KEY).await.assert_problem(409, "idempotency_outcome_unknown");
    gate.open();
    let first = soon("the owner", first).await.expect("alive");
    assert!(first.is_fresh());
    lab.send(KEY).await.assert_replay_of(&first);
    assert_eq!((lab.executed(), lab.once.counts().fenced), (1, 0));
}

// threat B1, R51, R98
#[tokio::test]
async fn a_zombie_is_fenced_off_and_answers_its_caller_from_the_record() {
    let gate = Gate::default();
    let zombie = Lab::with(Handler::gated(&gate), redriving());
    zombie.store.always(Call::Renew, Act::LoseCall);
    let heir = zombie.another(Handler::new(|_| async { Ok(created("heir")) }), redriving());
    let first = zombie.begin(KEY).await;
    until_state(&zombie.memory, Some(StateKind::Unknown)).await;
    let second = heir.send(KEY).await;
    assert!(second.is_fresh());
    gate.open();
    let first = soon("the zombie", first).await.expect("alive");
    first.assert_replay_of(&second);
    assert_eq!(zombie.once.counts().fenced, 1);
    zombie.send(KEY).await.assert_replay_of(&second);
    assert_eq!((zombie.executed(), heir.executed()), (1, 1));
}

// threat B1, R98
#[tokio::test]
async fn a_zombie_whose_heir_still_works_is_told_so() {
    let (gate, heirs_gate) = (Gate::default(), Gate::default());
    let zombie = Lab::with(Handler::gated(&gate), redriving());
    zombie.store.always(Call::Renew, Act::LoseCall);
    let heir = zombie.another(Handler::gated(&heirs_gate), redriving());
    let first = zombie.begin(KEY).await;
    until_state(&zombie.memory, Some(StateKind::Unknown)).await;
    let second = heir.begin(KEY).await;
    gate.open();
    let first = soon("the zombie", first).await.expect("alive");
    first.assert_problem(409, "idempotency_in_progress");
    assert_eq!(zombie.once.counts().fenced, 1);
    heirs_gate.open();
    assert!(soon("the heir", second).await.expect("alive").is_fresh());
}

// threat B12
#[tokio::test]
async fn of_many_nodes_that_take_over_at_once_one_wins() {
    let gate = Gate::default();
    let zombie = Lab::with(Handler::gated(&gate), redriving());
    zombie.store.always(Call::Renew, Act::LoseCall);
    let heirs_gate = Gate::default();
    let handler = Handler::gated(&heirs_gate);
    let heirs: Vec<_> = (0..8).map(|_| zombie.another(handler.clone(), redriving())).collect();
    let _first = zombie.begin(KEY).await;
    until_state(&zombie.memory, Some(StateKind::Unknown)).await;
    let asked = heirs.iter().map(|heir| send_apart(&heir.app, KEY));
    let asked: Vec<_> = asked.collect();
    until("all but one to be refused", || async {
        asked.iter().filter(|call| call.is_finished()).count() == heirs.len() - 1
    })
    .await;
    heirs_gate.open();
    let mut fresh = 0;
    for call in asked {
        let got = soon("an heir", call).await.expect("alive");
        fresh += usize::from(got.is_fresh());
    }
    assert_eq!((fresh, handler.executed()), (1, 1));
    gate.open();
}

fn policy() -> Policy {
    Policy::default().with_lease(LEASE)
}

fn redriving() -> Policy {
    let within = Duration::from_secs(60 * 60);
    policy().with_recovery(Recovery::Redrive { within })
}

const KEY: &str = "order-4711";
/// Long enough that a busy machine renews in time.
const LEASE: Duration = Duration::from_millis(500);
const RENEWALS_PER_LEASE: usize = 3;
