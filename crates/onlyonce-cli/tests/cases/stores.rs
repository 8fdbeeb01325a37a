//! The cases of sections 4, 6 and 7 that need a store for many nodes.

use std::net::SocketAddr;
use std::time::Duration;

use proof::cutter::Cutter;
use servers::{Postgres, Redis};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

use crate::answer::Answer;
use crate::client::{Ask, Connection};
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, K1, K2, on_gateway, until, within};

on_gateway! { con_07, fail_25, fail_26, fail_27, fail_29, crs_07, crs_07_hold }

fn postgres() -> (Postgres, Set) {
    block_in_place(|| {
        let postgres = Postgres::start();
        let store = Set::Store(postgres.database());
        (postgres, store)
    })
}

/// Two gateways on one store before one upstream, which the first has.
async fn two(on: Kind, profile: &[Set]) -> (Subject, Subject) {
    let one = on.start(profile).await;
    let url = format!("http://{}", one.u.address);
    let two = on.start_at(&url, Upstream::start().await, profile).await;
    (one, two)
}

async fn send(address: SocketAddr, ask: Ask) -> Answer {
    Connection::open(address).await.send(&ask).await.expect("a whole answer")
}

async fn con_07(on: Kind) {
    let (_postgres, store) = postgres();
    let (one, two) = two(on, &[store]).await;
    let gate = Gate::new();
    one.u.plan("/t", [Reply::created().behind(&gate)]);
    let mut requests = JoinSet::new();
    for n in 0..100 {
        let address = [one.address(), two.address()][n % 2];
        requests.spawn(send(address, Ask::post(B1).key(K1)));
    }
    for _ in 0..99 {
        let refused = within("a refusal", requests.join_next()).await.expect("99").unwrap();
        refused.problem(409, "idempotency_in_progress");
    }
    gate.open();
    let first = within("the answer", requests.join_next()).await.expect("one").unwrap().fresh(201);
    two.post(K1, B1).await.replays(&first);
    one.post(K1, B1).await.replays(&first);
    assert_eq!(one.n(), 1);
}

async fn fail_25(on: Kind) {
    let (mut postgres, store) = postgres();
    let t = on.start(&[store]).await;
    block_in_place(|| postgres.kill());
    let refused = t.post(K1, B1).await;
    refused.problem(503, "idempotency_store_unavailable");
    assert!(refused.retry_after_s() >= 1);
    assert_eq!(t.n(), 0);
    block_in_place(|| postgres.start_again());
    let first = within("the store", async {
        loop {
            let answer = t.post(K1, B1).await;
            if answer.status == 201 {
                return answer;
            }
            // A copy of the refused claim may have come through: it is given back.
            assert!(matches!(answer.status, 503 | 409), "{answer:?}");
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn fail_26(on: Kind) {
    let (mut postgres, store) = postgres();
    let t = on.start(&[store, Set::StoreDown("pass")]).await;
    block_in_place(|| postgres.kill());
    within("the gateway to notice", async {
        while t.is_ready().await {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // R188: what a stranger may send again never runs without its record.
    let early = Ask::post(B1).key(K2).header("Early-Data", "1");
    t.send(&early).await.problem(503, "idempotency_store_unavailable");
    t.post(K1, B1).await.fresh(201);
    assert_eq!((t.n(), t.metric("onlyonce_passed_total{route=\"default\"}").await), (1, 1));
}

async fn fail_27(on: Kind) {
    let (_postgres, store) = postgres();
    let mut redis = block_in_place(|| Redis::start(&[]));
    let t = on.start(&[store, Set::Filter(redis.url())]).await;
    let before = t.post(K2, B1).await.fresh(201);
    block_in_place(|| redis.kill());
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&first);
    t.post(K2, B1).await.replays(&before);
    assert_eq!(t.n(), 2);
}

async fn fail_29(on: Kind) {
    let (postgres, _) = postgres();
    let cutter = Cutter::start(SocketAddr::from(([127, 0, 0, 1], postgres.port()))).await.unwrap();
    let line = format!("postgres://postgres@{}/postgres", cutter.address);
    let t = on.start(&[Set::Store(line)]).await;
    t.post(K2, B1).await.fresh(201);
    cutter.cut();
    let first = t.post(K1, B1).await.fresh(201);
    assert_eq!(cutter.made(), 1);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 2);
}

/// A gateway that sleeps through its lease while `/t` is at work, and another; what becomes of the caller.
async fn asleep(on: Kind, recovery: Set) -> (Subject, Subject, JoinSet<Answer>, Gate, Postgres) {
    let (postgres, store) = postgres();
    let (one, two) = two(on, &[store, Set::LeaseMs(1000), recovery]).await;
    let gate = Gate::new();
    one.u.plan("/t", [Reply::created().behind(&gate), Reply::created()]);
    let mut caller = JoinSet::new();
    caller.spawn(send(one.address(), Ask::post(B1).key(K1)));
    until("the execution", || one.n() == 1).await;
    one.pause();
    (one, two, caller, gate, postgres)
}

/// The first answer that is not the one of a key still running.
async fn after_lapse(t: &Subject) -> Answer {
    within("the lease to lapse", async {
        loop {
            let answer = t.post(K1, B1).await;
            if answer.status != 409 || answer.json()["code"] != "idempotency_in_progress" {
                return answer;
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

async fn crs_07(on: Kind) {
    let (one, two, mut caller, gate, _postgres) = asleep(on, Set::Recovery("redrive")).await;
    let redriven = after_lapse(&two).await.fresh(201);
    assert_eq!(one.n(), 2);
    gate.open();
    one.resume();
    let late = within("the late answer", caller.join_next()).await.expect("one").unwrap();
    late.replays(&redriven);
    assert_eq!(one.metric("onlyonce_fenced_total{route=\"default\"}").await, 1);
    two.post(K1, B1).await.replays(&redriven);
    assert_eq!(one.n(), 2);
}

// Under `hold` nobody took the record: the late owner's answer is the true one.
async fn crs_07_hold(on: Kind) {
    let (one, two, mut caller, gate, _postgres) = asleep(on, Set::Recovery("hold")).await;
    after_lapse(&two).await.problem(409, "idempotency_outcome_unknown");
    gate.open();
    one.resume();
    let late = within("the late answer", caller.join_next()).await.expect("one").unwrap();
    let late = late.fresh(201);
    two.post(K1, B1).await.replays(&late);
    assert_eq!(one.n(), 1);
}
