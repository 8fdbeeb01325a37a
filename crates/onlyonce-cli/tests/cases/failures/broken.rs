//! Sent on, and no whole answer: the outcome is unknown, and nothing is run again by itself.

use std::time::Duration;

use serde_json::Value;

use super::assert_is_held;
use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, Profile, Set};
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, on_both, on_gateway, within};

on_gateway! { until_close_cut, until_close_whole }

on_both! {
    fail_13, fail_14, fail_15, fail_17, fail_18, fail_19, fail_31,
    what_is_not_found_stays_held,
}

/// An upstream that executes `/t` and dies, and is well again at the next request.
async fn breaking(on: Kind, profile: Profile<'_>, broken: Reply) -> Subject {
    let t = on.start(profile).await;
    t.u.plan("/t", [broken, Reply::created()]);
    t
}

fn assert_unknown(answer: &Answer, status: u16) -> Value {
    assert!(answer.all("idempotent-replayed").is_empty());
    answer.problem(status, "idempotency_outcome_unknown")
}

// threat F3
async fn fail_13(on: Kind) {
    let t = breaking(on, D, Reply::reset()).await;
    let problem = assert_unknown(&t.post(K1, B1).await, 502);
    assert_eq!(problem["retry"], "same-key");
    for _ in 0..2 {
        assert_is_held(&t.post(K1, B1).await);
    }
    t.post(K1, B2).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 1);
}

async fn fail_14(on: Kind) {
    let body = "0123456789".repeat(100);
    for broken in [
        Reply::created().body(body.clone()).cut_after(500),
        Reply::created().body(body.clone()).cut_after(0),
        Reply::created().body(body.clone()).cut_after(999),
        Reply::created().body(body.clone()).chunked().cut_after(0),
    ] {
        let t = breaking(on, D, broken).await;
        // Never a short answer that looks whole: the client would have refused anything else.
        if let Ok(answer) = t.try_send(&Ask::post(B1).key(K1)).await {
            assert_unknown(&answer, 502);
        }
        assert_is_held(&t.post(K1, B1).await);
        assert_eq!(t.n(), 1);
    }
}

async fn fail_15(on: Kind) {
    let gate = Gate::new();
    let late = Reply::created().behind(&gate);
    let t = breaking(on, &[Set::UpstreamTimeoutMs(500)], late).await;
    let problem = assert_unknown(&t.post(K1, B1).await, 504);
    assert_eq!(problem["retry"], "same-key");
    assert_is_held(&t.post(K1, B1).await);
    gate.open();
    assert_is_held(&t.post(K1, B1).await);
    assert_eq!(t.n(), 1);
}

async fn fail_17(on: Kind) {
    let t = breaking(on, &[Set::Reconcile], Reply::reset()).await;
    let found = Reply::status(201)
        .header("Content-Type", "application/json")
        .header("Location", "/charges/ch_1");
    t.u.plan("/charges", [found.body("[{\"id\":\"ch_1\"}]")]);
    let ask = Ask::post(B1).key(K1).tenant("TA");
    assert_unknown(&t.send(&ask).await, 502);
    let settled = within("the upstream to be asked", async {
        loop {
            let retry = t.send(&ask).await;
            if retry.status != 409 {
                return retry;
            }
            assert_is_held(&retry);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let settled = settled.await;
    assert_eq!((settled.status, settled.all("idempotent-replayed")), (201, vec!["true"]));
    assert_eq!(settled.body, "[{\"id\":\"ch_1\"}]");
    assert_eq!(settled.all("location"), ["/charges/ch_1"]);
    let again = t.send(&ask).await;
    assert_eq!((again.status, again.body), (settled.status, settled.body));
    assert_eq!(t.n(), 1);
    let seen = t.u.seen();
    let asked = seen.iter().find(|seen| seen.method == "GET").expect("it was asked");
    assert_eq!(asked.target, format!("/charges?key={K1}"));
    assert_eq!(asked.header("authorization"), Some("Bearer tok_TA"), "on the caller's behalf");
    assert_eq!(asked.header("idempotency-key"), None);
}

async fn what_is_not_found_stays_held(on: Kind) {
    let empty = Reply::status(200).body("[]");
    let no_id = Reply::status(200).body("[{\"id\":\"\"}]");
    for answer in [empty, no_id, Reply::status(404), Reply::status(500), Reply::reset()] {
        let t = breaking(on, &[Set::Reconcile], Reply::reset()).await;
        t.u.plan("/charges", [answer]);
        assert_unknown(&t.post(K1, B1).await, 502);
        for _ in 0..3 {
            assert_is_held(&t.post(K1, B1).await);
        }
        assert_eq!(t.n(), 1);
    }
}

async fn fails_for_good(on: Kind, broken: Reply, status: u16, profile: Profile<'_>) {
    let t = breaking(on, profile, broken).await;
    let first = t.post(K1, B1).await;
    let problem = assert_unknown(&first, status);
    assert_eq!(problem["retry"], "never");
    let again = t.post(K1, B1).await.replays(&first);
    assert_eq!(again.problem(status, "idempotency_outcome_unknown"), problem);
    assert_eq!(t.n(), 1);
}

async fn fail_18(on: Kind) {
    fails_for_good(on, Reply::reset(), 502, &[Set::Recovery("fail")]).await;
    let late = Reply::created().behind(&Gate::new());
    fails_for_good(on, late, 504, &[Set::Recovery("fail"), Set::UpstreamTimeoutMs(500)]).await;
}

async fn fail_19(on: Kind) {
    let t = breaking(on, &[Set::Recovery("release")], Reply::reset()).await;
    assert_unknown(&t.post(K1, B1).await, 502);
    let second = t.post(K1, B1).await.fresh(201);
    t.post(K1, B1).await.replays(&second);
    assert_eq!(t.n(), 2);
}

/// In the library the handler panics where the upstream breaks off.
async fn fail_31(on: Kind) {
    fails_for_good(on, Reply::reset(), 502, &[Set::Recovery("fail")]).await;
    let cut = Reply::created().body("0123456789").cut_after(5);
    fails_for_good(on, cut, 502, &[Set::Recovery("fail")]).await;
}

/// An answer without a length ends with its connection, and nobody can tell its end from a break. What may be
/// a part is never replayed as the whole.
// R87, threat F4
async fn until_close_cut(on: Kind) {
    let json = "application/json";
    for (media, body) in [
        (json, r#"{"id":"ch_1","amou"#),
        (json, r#"[{"id":"ch_1"},"#),
        (json, r#"{"id":"ch_1"}{"#),
        (json, "12"),
        (json, "\"ch_1\""),
        (json, ""),
        ("text/plain", r#"{"id":"ch_1"}"#),
        ("text/html", "<p>charged"),
    ] {
        let reply = Reply::status(201).header("Content-Type", media).body(body).until_close();
        let t = breaking(on, D, reply).await;
        let first = t.post(K1, B1).await.fresh(201);
        assert_eq!(first.body, body, "the first caller gets what came");
        for _ in 0..2 {
            let gone = t.post(K1, B1).await;
            let problem = gone.problem(410, "idempotency_response_unavailable");
            assert_eq!(problem["original_status"], 201, "{media} {body}");
        }
        t.post(K1, B2).await.problem(422, "idempotency_key_reused");
        assert_eq!(t.n(), 1, "{media} {body}");
    }
}

// R66
async fn until_close_whole(on: Kind) {
    for body in [r#"{"id":"ch_1"}"#, "[1,\r\n 2]\r\n", " {} "] {
        let media = "application/vnd.shop+json; charset=utf-8";
        let reply = Reply::status(201).header("Content-Type", media).body(body).until_close();
        let t = breaking(on, D, reply).await;
        let first = t.post(K1, B1).await.fresh(201);
        t.post(K1, B1).await.replays(&first);
        assert_eq!((&first.body[..], t.n()), (body.as_bytes(), 1));
    }
    let t = breaking(on, D, Reply::status(204).until_close()).await;
    let first = t.post(K1, B1).await.fresh(204);
    t.post(K1, B1).await.replays(&first);
}
