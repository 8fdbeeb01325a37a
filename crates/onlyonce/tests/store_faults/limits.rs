//! Bounds of one process: over them the answer is 503 before any claim, and all of it comes back.

use bytes::Bytes;
use http_body_util::Full;
use onlyonce::Policy;
use onlyonce::velocity::Velocity;

use crate::faults::app::{Gate, Handler, charge_with, send};
use crate::faults::lab::{Lab, limits};
use crate::faults::scripted::{Act, Call};
use crate::faults::soon;

// R60, R85
#[tokio::test]
async fn over_the_bound_of_operations_nothing_is_claimed() {
    let gate = Gate::default();
    let one = limits().with_executing_max(1);
    let lab = Lab::bounded(Handler::gated(&gate), Policy::default(), one);
    let first = lab.begin("order-1").await;
    let over = lab.send("order-2").await;
    over.assert_problem(503, "overloaded");
    assert!(over.headers.contains_key("retry-after"));
    assert_eq!((lab.store.made(Call::Claim), lab.executed()), (1, 1));
    gate.open();
    assert!(soon("the first", first).await.expect("alive").is_fresh());
    // The place comes back a moment after the answer.
    let again = async {
        loop {
            let got = lab.send("order-2").await;
            if got.status != 503 {
                return got;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(soon("a place", again).await.is_fresh());
}

// R60, R85
#[tokio::test]
async fn over_the_bound_of_bodies_nothing_is_claimed_and_the_room_comes_back() {
    let few = limits().with_bodies_bytes_max(16);
    let lab = Lab::bounded(Handler::counting(), Policy::default(), few);
    let body = |length: usize| Full::new(Bytes::from(vec![b'1'; length]));
    let over = send(&lab.app, charge_with(KEY, body(17))).await;
    over.assert_problem(503, "overloaded");
    assert!(over.headers.contains_key("retry-after"));
    assert_eq!((lab.store.made(Call::Claim), lab.executed()), (0, 0));
    for _ in 0..3 {
        assert_eq!(send(&lab.app, charge_with(KEY, body(16))).await.status, 201);
    }
    assert_eq!(lab.executed(), 1);
}

// R168: what a store that is away does not begin uses up no limit
#[tokio::test]
async fn a_store_that_is_away_uses_up_no_limit() {
    let rule = Velocity::new([], "1/h".parse().unwrap());
    let lab = Lab::new(Policy::default().with_velocity([rule]));
    lab.store.always(Call::Load, Act::NotDone);
    lab.store.always(Call::Claim, Act::NotDone);
    for _ in 0..3 {
        lab.send(KEY).await.assert_problem(503, "idempotency_store_unavailable");
    }
    lab.store.always(Call::Load, Act::Do);
    lab.store.always(Call::Claim, Act::Do);
    assert!(lab.send(KEY).await.is_fresh());
    assert_eq!(lab.send("order-2").await.status, 429);
}

const KEY: &str = "order-4711";
