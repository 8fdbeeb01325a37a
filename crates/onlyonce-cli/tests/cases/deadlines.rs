//! Deadlines: by when a client needs its answer.

use std::sync::Arc;

use onlyonce::clock::{Clock, SystemClock};

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::{Gate, Reply};
use crate::subject::Kind;
use crate::{B1, B2, K1, K2, on_both, until, within};

on_both! {
    what_comes_too_late_is_not_executed,
    what_comes_too_late_is_answered_by_the_record,
    what_is_left_is_passed_on,
    a_deadline_ends_the_wait_and_not_the_work,
    a_waiter_waits_no_longer_than_its_deadline,
    a_deadline_that_cannot_be_read_is_none,
    a_policy_may_read_no_deadline,
    an_old_key_that_is_free_is_refused,
    an_old_key_that_is_known_is_answered_by_the_record,
}

/// The moment `ms` from now.
fn moment(ms: i64) -> String {
    SystemClock.wall().plus_ms(ms).rfc3339()
}

fn by(ask: Ask, ms: i64) -> Ask {
    ask.header("x-request-deadline", moment(ms))
}

// R172
async fn what_comes_too_late_is_not_executed(on: Kind) {
    let t = on.start(D).await;
    for late in [
        by(Ask::post(B1).key(K1), -1),
        Ask::post(B1).key(K1).header("request-timeout", "0"),
        Ask::post(B1).key(K1).header("grpc-timeout", "0m"),
    ] {
        let problem = t.send(&late).await.problem(504, "idempotency_deadline_exceeded");
        assert_eq!(problem["retry"], "never");
    }
    assert_eq!(t.n(), 0);
    // The key was not claimed.
    t.send(&by(Ask::post(B1).key(K1), 60_000)).await.fresh(201);
    assert_eq!(t.n(), 1);
}

// R173
async fn what_comes_too_late_is_answered_by_the_record(on: Kind) {
    let t = Arc::new(on.start(D).await);
    let first = t.send(&Ask::post(B1).key(K1)).await.fresh(201);
    t.send(&by(Ask::post(B1).key(K1), -1)).await.replays(&first);
    t.send(&by(Ask::post(B2).key(K1), -1)).await.problem(422, "idempotency_key_reused");

    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let running = tokio::spawn({
        let t = t.clone();
        async move { t.send(&Ask::post(B1).key(K2)).await }
    });
    until("the second runs", || t.n() == 2).await;
    let late = t.send(&by(Ask::post(B1).key(K2), -1)).await;
    late.problem(409, "idempotency_in_progress");
    gate.open();
    within("its answer", running).await.unwrap().fresh(201);
    assert_eq!(t.n(), 2);
}

// R175
async fn what_is_left_is_passed_on(on: Kind) {
    let t = on.start(D).await;
    let deadline = moment(60_000);
    let ask = Ask::post(B1).key(K1).header("request-timeout", "30").header("grpc-timeout", "20S");
    t.send(&ask.header("x-request-deadline", &deadline)).await.fresh(201);
    let seen = t.u.seen().remove(0).headers;
    assert_eq!(seen["x-request-deadline"], deadline.as_str());
    // The earliest of them bounds the work.
    let seconds: f64 = seen["request-timeout"].to_str().unwrap().parse().unwrap();
    assert!((10.0..=20.0).contains(&seconds), "{seconds}");
    let grpc = seen["grpc-timeout"].to_str().unwrap();
    let ms: u64 = grpc.strip_suffix('m').expect("milliseconds").parse().unwrap();
    assert!((10_000..=20_000).contains(&ms), "{ms}");
}

// R174
async fn a_deadline_ends_the_wait_and_not_the_work(on: Kind) {
    let t = on.start(D).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let late = t.send(&by(Ask::post(B1).key(K1), 400)).await;
    late.problem(504, "idempotency_outcome_unknown");
    // Told as unknown, not as running.
    let mut retry = t.send(&Ask::post(B1).key(K1)).await;
    for _ in 0..100 {
        if retry.json()["code"] == "idempotency_outcome_unknown" {
            break;
        }
        retry = t.send(&Ask::post(B1).key(K1)).await;
    }
    retry.problem(409, "idempotency_outcome_unknown");
    // The answer that comes after all is the outcome.
    gate.open();
    let mut replay = t.send(&Ask::post(B1).key(K1)).await;
    for _ in 0..1_000 {
        if replay.status == 201 {
            break;
        }
        replay = t.send(&Ask::post(B1).key(K1)).await;
    }
    assert_eq!(replay.status, 201, "{replay:?}");
    assert_eq!(replay.all("idempotent-replayed"), ["true"]);
    assert_eq!(t.n(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_lets_no_retry_redrive_beside_the_work() {
    let t = Kind::Gateway.start(&[Set::Recovery("redrive")]).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let late = t.send(&by(Ask::post(B1).key(K1), 300)).await;
    late.problem(504, "idempotency_outcome_unknown");
    for _ in 0..20 {
        t.send(&Ask::post(B1).key(K1)).await.problem(409, "idempotency_in_progress");
    }
    assert_eq!(t.n(), 1);
    gate.open();
}

async fn a_waiter_waits_no_longer_than_its_deadline(on: Kind) {
    let t = Arc::new(on.start(&[Set::WaitMs(60_000)]).await);
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let running = tokio::spawn({
        let t = t.clone();
        async move { t.send(&Ask::post(B1).key(K1)).await }
    });
    until("the first runs", || t.n() == 1).await;
    let waited = within("an answer", t.send(&by(Ask::post(B1).key(K1), 300))).await;
    waited.problem(409, "idempotency_in_progress");
    gate.open();
    within("its answer", running).await.unwrap().fresh(201);
}

async fn a_deadline_that_cannot_be_read_is_none(on: Kind) {
    let t = on.start(D).await;
    for (key, value) in [("key-1", "soon"), ("key-2", "-5"), ("key-3", "")] {
        t.send(&Ask::post(B1).key(key).header("request-timeout", value)).await.fresh(201);
    }
    assert_eq!(t.n(), 3);
}

async fn a_policy_may_read_no_deadline(on: Kind) {
    let t = on.start(&[Set::NoDeadline]).await;
    t.send(&by(Ask::post(B1).key(K1), -60_000)).await.fresh(201);
}

/// A UUIDv7 that was made `ms` ago.
fn uuid7(ms: i64) -> String {
    let made = format!("{:012x}", SystemClock.wall().plus_ms(-ms).as_ms());
    format!("{}-{}-7cc3-98c4-dc0c0c07398f", &made[..8], &made[8..])
}

const DAY_MS: i64 = 86_400_000;

// R109
async fn an_old_key_that_is_free_is_refused(on: Kind) {
    let t = on.start(&[Set::RefuseOldKeys]).await;
    let old = [
        Ask::post(B1).key(uuid7(DAY_MS + 1_000)),
        Ask::post(B1).key(K1).header("repeatability-first-sent", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ];
    for ask in &old {
        let problem = t.send(ask).await.problem(412, "idempotency_key_expired");
        assert_eq!(problem["retry"], "never");
    }
    assert_eq!(t.n(), 0);
    let young = [Ask::post(B1).key(uuid7(DAY_MS / 2)), Ask::post(B1).key(K1)];
    for ask in &young {
        t.send(ask).await.fresh(201);
    }
    assert_eq!(t.n(), 2);
    // By default every free key runs.
    let t = on.start(D).await;
    t.send(&old[0]).await.fresh(201);
}

async fn an_old_key_that_is_known_is_answered_by_the_record(on: Kind) {
    let t = on.start(&[Set::RefuseOldKeys]).await;
    let first = t.send(&Ask::post(B1).key(K1)).await.fresh(201);
    let old = "Sun, 06 Nov 1994 08:49:37 GMT";
    let late = |body: &str| Ask::post(body).key(K1).header("repeatability-first-sent", old);
    t.send(&late(B1)).await.replays(&first);
    t.send(&late(B2)).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 1);
}
