//! 6. Failures.

mod broken;

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, Profile, S, Set};
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, K1, K2, on_both, on_gateway, until, within};

on_both! {
    fail_01, fail_02, fail_03, fail_05, fail_06, fail_07, fail_09, fail_10, fail_21, fail_22, fail_23,
}
on_gateway! { fail_11 }

/// `reply` is kept: a retry gets it although the upstream would now answer otherwise.
async fn is_kept(on: Kind, profile: Profile<'_>, reply: Reply) {
    let t = on.start(profile).await;
    let status = reply.status;
    t.u.plan("/t", [reply, Reply::created()]);
    let first = t.post(K1, B1).await.fresh(status);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1, "{status}");
}

/// `reply` says that nothing was executed: a retry is executed.
async fn is_released(on: Kind, profile: Profile<'_>, reply: Reply) {
    let t = on.start(profile).await;
    let status = reply.status;
    t.u.plan("/t", [reply.clone(), reply, Reply::created()]);
    for _ in 0..2 {
        t.post(K1, B1).await.fresh(status);
    }
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 3, "{status}");
}

/// `reply` leaves open what happened: a retry is not executed.
async fn is_unknown(on: Kind, profile: Profile<'_>, reply: Reply) {
    let t = on.start(profile).await;
    let status = reply.status;
    t.u.plan("/t", [reply, Reply::created()]);
    t.post(K1, B1).await.fresh(status);
    assert_is_held(&t.post(K1, B1).await);
    assert_eq!(t.n(), 1, "{status}");
}

/// The outcome is unknown, and a retry is told when to ask again.
fn assert_is_held(retry: &Answer) {
    let problem = retry.problem(409, "idempotency_outcome_unknown");
    assert_eq!(problem["retry"], "same-key");
    assert!(retry.retry_after_s() >= 1);
}

async fn fail_01(on: Kind) {
    for profile in [D, S] {
        let declined = Reply::status(402).header("Content-Type", "application/json");
        is_kept(on, profile, declined.body("{\"error\":\"card_declined\"}")).await;
    }
}

async fn fail_02(on: Kind) {
    for status in [400, 404, 405, 409, 410, 412, 413, 415, 418, 422, 423, 451] {
        is_kept(on, D, Reply::status(status)).await;
    }
}

async fn fail_03(on: Kind) {
    for profile in [D, S] {
        is_released(on, profile, Reply::status(429).header("Retry-After", "3")).await;
    }
    is_released(on, D, Reply::status(429)).await;
    is_released(on, D, Reply::status(409).header("Retry-After", "1")).await;
}

async fn fail_05(on: Kind) {
    for status in [401, 403, 407, 408, 421, 425] {
        is_released(on, D, Reply::status(status)).await;
    }
}

async fn fail_06(on: Kind) {
    is_kept(on, S, Reply::status(500)).await;
}

async fn fail_07(on: Kind) {
    for status in [500, 501, 505, 507, 599] {
        is_kept(on, D, Reply::status(status)).await;
    }
    is_kept(on, D, Reply::status(500).header("Retry-After", "1")).await;
}

async fn fail_09(on: Kind) {
    is_released(on, D, Reply::status(503).header("Retry-After", "1")).await;
    is_unknown(on, D, Reply::status(503)).await;
    // Varnish, whose backend died: it may have executed.
    let relayed = Reply::status(503).header("Retry-After", "5").header("Via", "1.1 varnish");
    is_unknown(on, D, relayed).await;
    for status in [502, 504] {
        is_unknown(on, D, Reply::status(status)).await;
        is_unknown(on, D, Reply::status(status).header("Retry-After", "1")).await;
    }
}

/// Nothing was sent, and the answer says so.
fn assert_never_sent(on: Kind, answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.retry_after_s() >= 1);
    // In the library, the handler itself says what it could not reach.
    if on == Kind::Gateway {
        let problem = answer.problem(503, "upstream_unreachable");
        assert_eq!(problem["retry"], "same-key");
    }
}

async fn fail_10(on: Kind) {
    let mut t = on.start_before(Upstream::closed().await, D).await;
    for _ in 0..2 {
        assert_never_sent(on, &t.post(K1, B1).await);
    }
    t.u.open().await;
    let first = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&first);
    assert_eq!(t.n(), 1);
}

async fn fail_11(on: Kind) {
    let u = Upstream::start().await;
    let plain = format!("https://{}", u.address);
    let t = on.start_at(&plain, u, D).await;
    for _ in 0..2 {
        assert_never_sent(on, &t.post(K1, B1).await);
    }
    assert_eq!(t.u.total(), 0);
    let t = on.start_at("http://no-such-host.invalid:9", Upstream::start().await, D).await;
    for _ in 0..2 {
        assert_never_sent(on, &t.post(K1, B1).await);
    }
}

async fn fail_21(on: Kind) {
    let t = on.start(D).await;
    let body = vec![b'x'; 900 * 1024];
    t.u.plan("/t", [Reply::created().body(body.clone())]);
    let ask = Ask::post(B1).key(K1);
    let mut connection = t.connect().await;
    connection.0.write(&ask.bytes()).await.unwrap();
    let (_, status, _) = within("the head", connection.head()).await.unwrap();
    assert_eq!(status, 201);
    connection.0.exact(1000).await.unwrap();
    connection.0.reset();
    let again = t.send(&ask).await;
    assert_eq!((again.status, again.all("idempotent-replayed")), (201, vec!["true"]));
    assert_eq!(again.body, body);
    assert_eq!(t.n(), 1);
}

async fn fail_22(on: Kind) {
    let t = on.start(&[Set::WaitMs(50_000)]).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    leave_at_work(&t).await;
    let ask = Ask::post(B1).key(K1);
    let (again, ()) = tokio::join!(t.send(&ask), async {
        t.until_waiting(1).await;
        gate.open();
    });
    assert_eq!((again.status, again.all("idempotent-replayed")), (201, vec!["true"]));
    assert_eq!(again.json()["n"], 1);
    assert_eq!(t.n(), 1);
}

/// A client that hangs up while its request is at work.
async fn leave_at_work(t: &Subject) {
    let mut connection = t.connect().await;
    connection.0.write(&Ask::post(B1).key(K1).bytes()).await.unwrap();
    until("the execution", || t.n() == 1).await;
    connection.0.reset();
}

async fn fail_23(on: Kind) {
    let says = |status, word| Reply::status(status).header("Idempotency-Store", word);
    // `fresh` and `replays` see to it that the header is not passed on.
    is_released(on, D, says(422, "release")).await;
    is_released(on, D, says(200, "release")).await;
    is_kept(on, D, says(429, "store")).await;
    is_kept(on, D, says(503, "store")).await;
    is_unknown(on, D, says(200, "unknown")).await;
    // A word that means nothing changes nothing.
    is_kept(on, D, says(422, "perhaps")).await;
    let t = on.start(D).await;
    t.u.plan("/t", [says(422, "release"), Reply::created()]);
    t.post(K1, B1).await.fresh(422);
    t.post(K2, B1).await.fresh(201);
}
