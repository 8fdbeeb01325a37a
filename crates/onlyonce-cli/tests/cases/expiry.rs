//! 7. Expiry.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::Ask;
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::Kind;
use crate::{B1, B2, K1, on_both, until};

on_both! { exp_01, exp_02, exp_03, exp_05, exp_06, exp_07 }

const S1: Duration = Duration::from_millis(1000);

async fn exp_01(on: Kind) {
    let t = on.start(&[Set::TtlMs(2000), Set::SweepMs(200)]).await;
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&first);
    sleep(3 * S1).await;
    let second = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&second);
    assert_eq!(t.n(), 2);
}

async fn exp_02(on: Kind) {
    let t = on.start(&[Set::TtlMs(2000), Set::SweepMs(24 * 60 * 60 * 1000)]).await;
    t.post(K1, B1).await.fresh(201);
    sleep(3 * S1).await;
    let second = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&second);
    assert_eq!(t.n(), 2);
}

async fn exp_03(on: Kind) {
    let t = on.start(&[Set::TtlMs(2000)]).await;
    t.post(K1, B1).await.fresh(201);
    t.post(K1, B2).await.problem(422, "idempotency_key_reused");
    sleep(3 * S1).await;
    let second = t.post(K1, B2).await.fresh(201);
    t.post(K1, B2).await.replays(&second);
    t.post(K1, B1).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 2);
}

// threat I8
async fn exp_05(on: Kind) {
    let t = on.start(&[Set::TtlMs(1000), Set::SweepMs(200)]).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let ask = Ask::post(B1).key(K1);
    let (first, ()) = tokio::join!(t.send(&ask), async {
        until("the execution", || t.n() == 1).await;
        sleep(S1 * 5 / 2).await;
        t.post(K1, B1).await.problem(409, "idempotency_in_progress");
        gate.open();
    });
    first.fresh(201);
    assert_eq!(t.n(), 1);
}

// threat I8
async fn exp_06(on: Kind) {
    let t = on.start(&[Set::TtlMs(5000)]).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let ask = Ask::post(B1).key(K1);
    let (first, ()) = tokio::join!(t.send(&ask), async {
        until("the execution", || t.n() == 1).await;
        sleep(S1 * 11 / 2).await;
        gate.open();
    });
    // Longer ago than the ttl was the claim, but not the completion.
    t.post(K1, B1).await.replays(&first.fresh(201));
    assert_eq!(t.n(), 1);
}

async fn exp_07(on: Kind) {
    let t = on.start(&[Set::TtlMs(4000)]).await;
    let first = t.post(K1, B1).await.fresh(201);
    sleep(2 * S1).await;
    t.post(K1, B1).await.replays(&first);
    sleep(S1 * 5 / 2).await;
    t.post(K1, B1).await.fresh(201);
    assert_eq!(t.n(), 2);
}
