//! 7. Crashes of the gateway.

use std::collections::HashSet;
use std::time::Duration;

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, Profile, Set};
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, K2, on_gateway, until, within};

on_gateway! { crs_01, crs_02, crs_03 }

/// A gateway that died while `/t` was at work, and is back.
async fn crashed(on: Kind, profile: Profile<'_>) -> Subject {
    let mut t = on.start(profile).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate), Reply::created()]);
    let kept = t.send(&Ask::post(B1).key(K2).to("/kept")).await.fresh(201);
    let mut connection = t.connect().await;
    connection.0.write(&Ask::post(B1).key(K1).bytes()).await.unwrap();
    until("the execution", || t.n() == 1).await;
    t.kill_and_restart().await;
    gate.open();
    // What was answered before is still known.
    t.send(&Ask::post(B1).key(K2).to("/kept")).await.replays(&kept);
    t
}

fn assert_is_held(retry: &Answer) {
    retry.problem(409, "idempotency_outcome_unknown");
    assert!(retry.retry_after_s() >= 1);
}

async fn crs_01(on: Kind) {
    let mut t = crashed(on, D).await;
    assert_is_held(&t.post(K1, B1).await);
    t.post(K1, B2).await.problem(422, "idempotency_key_reused");
    t.kill_and_restart().await;
    assert_is_held(&t.post(K1, B1).await);
    assert_eq!(t.n(), 1);
}

async fn crs_02(on: Kind) {
    let t = crashed(on, &[Set::LeaseMs(1000)]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_is_held(&t.post(K1, B1).await);
    assert_eq!(t.n(), 1);
}

async fn crs_03(on: Kind) {
    let t = crashed(on, &[Set::Recovery("redrive"), Set::LeaseMs(1000)]).await;
    // The same meaning in other bytes is not the same message to the upstream.
    assert_is_held(&t.post(K1, &format!("{B1} ")).await);
    assert_eq!(t.n(), 1);
    let redriven = within("the redrive", async {
        loop {
            let retry = t.post(K1, B1).await;
            if retry.status != 409 {
                return retry;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let redriven = redriven.await;
    assert_eq!(redriven.status, 201, "{redriven:?}");
    assert_eq!(t.n(), 2);
    let seen = t.u.seen();
    let sent: Vec<_> = seen.iter().filter(|seen| seen.target == "/t").collect();
    // An upstream that knows keys sees one operation, in two attempts.
    let operations: HashSet<_> =
        sent.iter().map(|seen| (seen.header("idempotency-key"), &seen.body)).collect();
    assert_eq!(operations.len(), 1);
    let attempts: Vec<_> = sent.iter().map(|seen| seen.header("idempotency-attempt")).collect();
    assert_eq!(attempts, [Some("1"), Some("2")]);
    let again = t.post(K1, B1).await;
    assert_eq!((again.status, again.all("idempotent-replayed")), (201, vec!["true"]));
    assert_eq!((again.body, t.n()), (redriven.body, 2));
}
