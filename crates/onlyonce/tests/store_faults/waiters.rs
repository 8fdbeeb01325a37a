//! Callers that wait for the answer of another.

use std::time::Duration;

use onlyonce::policy::InFlight;
use onlyonce::{Limits, Policy};

use crate::faults::app::{App, Gate, Got, Handler, charge, send, send_apart};
use crate::faults::lab::{Lab, gated, limits};
use crate::faults::scripted::{Act, Call};
use crate::faults::{soon, until};

// threat I3, R59
#[tokio::test]
async fn a_waiter_gets_the_answer_although_every_wake_up_is_lost() {
    let (lab, gate) = gated(waiting());
    lab.store.mute();
    let first = lab.begin(KEY).await;
    let waiter = send_apart(&lab.app, KEY);
    until_waiting(&lab, 1).await;
    gate.open();
    let first = soon("the owner", first).await.expect("alive");
    let waiter = soon("the waiter", waiter).await.expect("alive");
    waiter.assert_replay_of(&first);
    assert_eq!((lab.executed(), lab.once.waiting()), (1, 0));
}

// threat I1, R55, R59
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_costs_the_store_little_however_many_call() {
    let gate = Gate::default();
    let many = limits().with_waiters(CALLERS, CALLERS, CALLERS);
    let lab = Lab::bounded(Handler::gated(&gate), waiting(), many);
    lab.store.always(Call::Claim, Act::Slowly(LATENCY));
    lab.store.always(Call::Load, Act::Slowly(LATENCY));
    let calls: Vec<_> = (0..CALLERS).map(|_| send_apart(&lab.app, KEY)).collect();
    until_waiting(&lab, CALLERS - 1).await;
    gate.open();
    let mut fresh = 0;
    for call in calls {
        let got = soon("a caller", call).await.expect("alive");
        assert_eq!((got.status, &got.body[..]), (201, &b"parcel 1"[..]));
        fresh += usize::from(got.is_fresh());
    }
    assert_eq!((fresh, lab.executed(), lab.once.waiting()), (1, 1, 0));
    let claims = lab.store.made(Call::Claim);
    assert!(claims <= 50, "{claims} claims");
    // Each of the callers looked at least twice; the store was asked as often as time allowed.
    let loads = lab.store.made(Call::Load);
    assert!(loads <= CALLERS / 2, "{loads} loads");
}

// threat I2, R60
#[tokio::test]
async fn over_a_cap_of_waiters_the_answer_comes_at_once() {
    let caps = [(2, 9, 9), (9, 2, 9), (9, 9, 2)];
    for (in_all, per_key, per_principal) in caps {
        let gate = Gate::default();
        let limits = Limits::default().with_waiters(in_all, per_key, per_principal);
        let lab = Lab::bounded(Handler::gated(&gate), waiting(), limits);
        let first = lab.begin(KEY).await;
        let waiters = [send_apart(&lab.app, KEY), send_apart(&lab.app, KEY)];
        until_waiting(&lab, 2).await;
        let over = soon("the one too many", lab.send(KEY)).await;
        over.assert_problem(409, "idempotency_in_progress");
        assert!(over.headers.contains_key("retry-after"));
        assert!(!first.is_finished(), "it did not wait for the first");
        gate.open();
        for waiter in waiters {
            assert!(soon("a waiter", waiter).await.expect("alive").is_replay());
        }
        assert_eq!((lab.once.waiting(), lab.executed()), (0, 1));
    }
}

// threat I2
#[tokio::test]
async fn a_cap_of_one_principal_or_key_leaves_room_for_the_others() {
    let gate = Gate::default();
    let limits = Limits::default().with_waiters(9, 1, 9);
    let lab = Lab::bounded(Handler::gated(&gate), waiting(), limits);
    let _firsts = [lab.begin("order-1").await, lab.begin("order-2").await];
    let waiter = send_apart(&lab.app, "order-1");
    until_waiting(&lab, 1).await;
    let other = send_apart(&lab.app, "order-2");
    until_waiting(&lab, 2).await;
    gate.open();
    for waiter in [waiter, other] {
        assert!(soon("a waiter", waiter).await.expect("alive").is_replay());
    }

    let gate = Gate::default();
    let limits = Limits::default().with_waiters(9, 9, 1);
    let lab = Lab::bounded(Handler::gated(&gate), waiting(), limits);
    let _firsts = [as_who(&lab, "ann"), as_who(&lab, "bob")];
    until("both to run", || async { lab.executed() == 2 }).await;
    let ann = as_who(&lab, "ann");
    until_waiting(&lab, 1).await;
    let bob = as_who(&lab, "bob");
    until_waiting(&lab, 2).await;
    gate.open();
    for waiter in [ann, bob] {
        assert!(soon("a waiter", waiter).await.expect("alive").is_replay());
    }
}

// threat A12, R61
#[tokio::test]
async fn a_waiter_that_leaves_gives_its_place_back_and_changes_nothing() {
    let (lab, gate) = gated(waiting());
    let first = lab.begin(KEY).await;
    let waiter = send_apart(&lab.app, KEY);
    until_waiting(&lab, 1).await;
    waiter.abort();
    until_waiting(&lab, 0).await;
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
    assert!(lab.send(KEY).await.is_replay());
}

// R59, R64
#[tokio::test]
async fn a_wait_that_ends_is_told_that_the_first_is_still_at_work() {
    let (lab, gate) = gated(Policy::default().with_in_flight(InFlight::Wait(LATENCY)));
    let first = lab.begin(KEY).await;
    lab.send(KEY).await.assert_problem(409, "idempotency_in_progress");
    assert_eq!(lab.once.waiting(), 0);
    gate.open();
    assert!(soon("the owner", first).await.expect("alive").is_fresh());
    assert_eq!(lab.executed(), 1);
}

// R63: a waiter is never promoted; it is told to come again
#[tokio::test]
async fn a_waiter_whose_owner_gives_the_key_back_is_told_to_ask_again() {
    let gate = Gate::default();
    let handler = {
        let gate = gate.clone();
        Handler::new(move |_| {
            let gate = gate.clone();
            async move {
                gate.passed().await;
                let status = http::StatusCode::TOO_MANY_REQUESTS;
                Ok(crate::faults::app::answered(status, "slow down"))
            }
        })
    };
    let lab = Lab::with(handler, waiting());
    let first = lab.begin(KEY).await;
    let waiter = send_apart(&lab.app, KEY);
    until_waiting(&lab, 1).await;
    gate.open();
    assert_eq!(soon("the owner", first).await.expect("alive").status, 429);
    let waiter = soon("the waiter", waiter).await.expect("alive");
    waiter.assert_problem(409, "idempotency_in_progress");
    assert_eq!(lab.executed(), 1);
}

async fn until_waiting(lab: &Lab, count: usize) {
    until("the waiters", || async { lab.once.waiting() == count }).await;
}

fn as_who(lab: &Lab, who: &'static str) -> tokio::task::JoinHandle<Got> {
    let app: App = lab.app.clone();
    tokio::spawn(async move {
        let mut request = charge(KEY);
        let who = http::HeaderValue::from_static(who);
        request.headers_mut().insert("x-who", who);
        send(&app, request).await
    })
}

fn waiting() -> Policy {
    Policy::default().with_in_flight(InFlight::Wait(Duration::from_secs(25)))
}

const KEY: &str = "order-4711";
const CALLERS: usize = 2_000;
/// Of a store that is far away.
const LATENCY: Duration = Duration::from_millis(100);
