//! 4. Concurrency.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, Profile, S, Set};
use crate::reply::{Content, Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, on_both, tiered, until, within};

on_both! {
    con_01, con_02, con_03, con_06, con_09, con_10, con_11, con_13, con_14,
    a_wait_that_ends_is_409,
}

/// A subject whose first execution of `/t` waits for the gate.
async fn gated(on: Kind, profile: Profile<'_>) -> (Arc<Subject>, Gate) {
    let t = on.start(profile).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate), Reply::created()]);
    (Arc::new(t), gate)
}

/// Sends all of them at once.
fn send_all(t: &Arc<Subject>, asks: impl IntoIterator<Item = Ask>) -> JoinSet<Answer> {
    let mut sent = JoinSet::new();
    for ask in asks {
        let t = t.clone();
        sent.spawn(async move { t.send(&ask).await });
    }
    sent
}

/// The first `count` answers that come.
async fn answers(sent: &mut JoinSet<Answer>, count: usize) -> Vec<Answer> {
    let mut answers = Vec::new();
    while answers.len() < count {
        let next = within("one more answer", sent.join_next()).await;
        answers.push(next.expect("one more was sent").unwrap());
    }
    answers
}

fn same(count: usize) -> Vec<Ask> {
    vec![Ask::post(B1).key(K1); count]
}

/// That each is told to come back with the same key.
fn assert_in_progress(losers: &[Answer]) {
    for loser in losers {
        let problem = loser.problem(409, "idempotency_in_progress");
        assert_eq!(problem["title"], "A request is outstanding for this Idempotency-Key");
        assert_eq!(problem["retry"], "same-key");
        assert_eq!(loser.retry_after_s(), 1);
    }
}

async fn con_01(on: Kind) {
    let (t, gate) = gated(on, D).await;
    let mut sent = send_all(&t, same(100));
    // The owner cannot end before the gate opens: whoever is answered before that has lost.
    assert_in_progress(&answers(&mut sent, 99).await);
    gate.open();
    answers(&mut sent, 1).await.remove(0).fresh(201);
    assert_eq!(t.n(), 1);
}

async fn con_02(on: Kind) {
    let (t, gate) = gated(on, D).await;
    let mut sent = send_all(&t, same(100));
    let losers = answers(&mut sent, 99).await;
    gate.open();
    let owner = answers(&mut sent, 1).await.remove(0).fresh(201);
    tokio::time::sleep(Duration::from_secs(losers[0].retry_after_s())).await;
    let mut retried = send_all(&t, same(99));
    for retry in answers(&mut retried, 99).await {
        retry.replays(&owner);
    }
    assert_eq!(t.n(), 1);
}

async fn con_03(on: Kind) {
    // Longer than the row's 5 s, for slow machines.
    let (t, gate) = gated(on, &[Set::WaitMs(50_000)]).await;
    let mut sent = send_all(&t, same(100));
    until("the first execution", || t.n() == 1).await;
    t.until_waiting(99).await;
    gate.open();
    let answers = answers(&mut sent, 100).await;
    let (waiters, owners): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.headers.contains_key("idempotent-replayed"));
    let [owner] = &owners[..] else {
        panic!("{} owners", owners.len());
    };
    owner.clone().fresh(201);
    for waiter in waiters {
        waiter.replays(owner);
    }
    assert_eq!(t.n(), 1);
    t.until_waiting(0).await;
}

async fn a_wait_that_ends_is_409(on: Kind) {
    let (t, gate) = gated(on, &[Set::WaitMs(300)]).await;
    let mut sent = send_all(&t, same(2));
    assert_in_progress(&answers(&mut sent, 1).await);
    // Another request does not wait for what it can never get.
    t.post(K1, B2).await.problem(422, "idempotency_key_reused");
    gate.open();
    answers(&mut sent, 1).await.remove(0).fresh(201);
    assert_eq!(t.n(), 1);
}

async fn con_06(on: Kind) {
    let (t, gate) = gated(on, S).await;
    let mut sent = send_all(&t, same(2));
    let loser = answers(&mut sent, 1).await.remove(0);
    let error = loser.stripe(409, "invalid_request_error");
    assert_eq!(error["code"], "idempotency_key_in_use");
    gate.open();
    answers(&mut sent, 1).await.remove(0).fresh(201);
    assert_eq!(t.n(), 1);
}

// threat G13
async fn con_09(on: Kind) {
    let (t, gate) = gated(on, D).await;
    let asks = (0..100).map(|n| Ask::post([B1, B2][n % 2]).key(K1));
    let mut sent = send_all(&t, asks);
    let losers = answers(&mut sent, 99).await;
    let (running, reused): (Vec<_>, Vec<_>) =
        losers.into_iter().partition(|loser| loser.status == 409);
    assert_eq!((running.len(), reused.len()), (49, 50));
    assert_in_progress(&running);
    for answer in reused {
        answer.problem(422, "idempotency_key_reused");
    }
    gate.open();
    answers(&mut sent, 1).await.remove(0).fresh(201);
    assert_eq!(t.n(), 1);
}

async fn con_10(on: Kind) {
    let t = Arc::new(on.start(D).await);
    t.u.plan("/t", [Reply::created().content(Content::Echo)]);
    let count = tiered(1000);
    let body = |n: usize| format!("{{\"operation\":{n}}}");
    for round in 0..2 {
        let mut sent = JoinSet::new();
        for n in 0..count {
            let t = t.clone();
            sent.spawn(async move { (n, t.post(&format!("key-{n}"), &body(n)).await) });
        }
        while let Some(answered) = sent.join_next().await {
            let (n, answer) = answered.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (201, body(n).as_bytes()));
            assert_eq!(answer.headers.contains_key("idempotent-replayed"), round == 1);
        }
        assert_eq!(t.n(), count);
    }
}

async fn con_11(on: Kind) {
    let (t, gate) = gated(on, &[Set::WaitMs(50_000)]).await;
    let mut owner = send_all(&t, same(1));
    until("the execution", || t.n() == 1).await;
    let mut waiter = t.connect().await;
    waiter.0.write(&Ask::post(B1).key(K1).bytes()).await.unwrap();
    t.until_waiting(1).await;
    waiter.0.reset();
    t.until_waiting(0).await;
    gate.open();
    let first = answers(&mut owner, 1).await.remove(0).fresh(201);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn con_13(on: Kind) {
    let (t, gate) = gated(on, &[Set::LeaseMs(1000)]).await;
    let mut owner = send_all(&t, same(1));
    until("the execution", || t.n() == 1).await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_in_progress(&[t.post(K1, B1).await]);
    }
    gate.open();
    let first = answers(&mut owner, 1).await.remove(0).fresh(201);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn con_14(on: Kind) {
    let t = on.start(D).await;
    for n in 0..tiered(200) {
        // On the same connection, as soon as the last byte is here; and on another.
        let ask = Ask::post(B1).key(format!("key-{n}"));
        let mut connection = t.connect().await;
        let first = connection.send(&ask).await.unwrap().fresh(201);
        connection.send(&ask).await.unwrap().replays(&first);
        t.send(&ask).await.replays(&first);
        assert_eq!(t.n(), n + 1);
    }
}
