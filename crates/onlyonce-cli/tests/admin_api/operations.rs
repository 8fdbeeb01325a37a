//! An unknown outcome is found, looked at, settled, released; a completed one is forgotten.

use serde_json::{Value, json};

use crate::lab::{Lab, ask};

#[test]
fn an_unknown_outcome_is_settled_and_the_retry_gets_exactly_that_answer() {
    let lab = Lab::start();
    let id = lab.unknown("order-1");
    // What happened is told a moment after it has.
    let has_events = |count| move |told: &Value| told["events"].as_array().unwrap().len() == count;
    let found = lab.get_when(&format!("operations/{id}"), has_events(2));
    assert_eq!((&found["state"], &found["key"]), (&json!("unknown"), &json!("order-1")));
    assert!(found["verdict"].as_str().unwrap().contains("may have been executed"), "{found}");
    assert!(found["checks"][0].as_str().unwrap().contains("order-1"));
    let kinds: Vec<_> =
        found["events"].as_array().unwrap().iter().map(|event| event["kind"].clone()).collect();
    assert_eq!(kinds, ["claimed", "unknown"]);
    assert_eq!(lab.get("summary")["states"]["unknown"], 1);

    let stale = json!({"failed": true, "reason": "r", "revision": "00000000deadbeef"});
    let stale = lab.post(&format!("operations/{id}/settle"), &stale);
    assert_eq!((stale.status, stale.code().as_str()), (409, "changed"));
    let answer = json!({
        "revision": found["revision"],
        "status": 201, "headers": {"content-type": "application/json", "location": "/charges/1"},
        "body": "{\"id\":\"ch_1\"}", "reason": "the provider has it", "who": "ann",
    });
    let settled = lab.post(&format!("operations/{id}/settle"), &answer);
    assert_eq!(settled.status, 200, "{}", settled.body);
    let settled = settled.json();
    assert_eq!(
        (&settled["state"], &settled["settled_by"]),
        (&json!("completed"), &json!("operator"))
    );
    let told = lab.get_when(&format!("operations/{id}"), has_events(3));
    let last = &told["events"][2];
    assert_eq!(
        (&last["kind"], &last["who"], &last["why"]),
        (&json!("settled"), &json!("ann"), &json!("the provider has it"))
    );

    let retry = lab.send("/hangs-up", "order-1");
    assert_eq!((retry.status, retry.body.as_str()), (201, "{\"id\":\"ch_1\"}"));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(retry.header("location"), Some("/charges/1"));
    assert_eq!(lab.service.executions("order-1"), 1, "it was executed once");
}

#[test]
fn an_operation_that_failed_for_good_says_so_to_every_retry() {
    let lab = Lab::start();
    let id = lab.unknown("order-1");
    let settled = lab.post(
        &format!("operations/{id}/settle"),
        &json!({"failed": true, "reason": "the card was stolen"}),
    );
    assert_eq!(settled.status, 200, "{}", settled.body);
    let retry = lab.send("/hangs-up", "order-1");
    assert_eq!((retry.status, retry.code().as_str()), (502, "idempotency_operation_failed"));
    assert_eq!(lab.service.executions("order-1"), 1);
}

#[test]
fn a_release_waits_for_the_quiet_time_and_lets_the_next_retry_run() {
    let lab = Lab::start();
    let id = lab.unknown("order-1");
    let early = lab.post(&format!("operations/{id}/release"), &json!({"reason": "not there"}));
    assert_eq!((early.status, early.code().as_str()), (409, "state_forbids"));
    assert!(early.body.contains("use force"), "{}", early.body);
    assert_eq!(lab.send("/hangs-up", "order-1").status, 409, "nothing was released");
    let forced = lab
        .post(&format!("operations/{id}/release"), &json!({"reason": "not there", "force": true}));
    assert_eq!((forced.status, &forced.json()["state"]), (200, &json!("released")));
    assert_eq!(lab.service.executions("order-1"), 1);
    lab.send("/hangs-up", "order-1");
    assert_eq!(lab.service.executions("order-1"), 2, "the next retry runs it");
}

#[test]
fn a_forgotten_key_runs_again() {
    let lab = Lab::start();
    assert_eq!(lab.send("/pay", "order-1").status, 201);
    assert_eq!(lab.send("/pay", "order-1").header("idempotent-replayed"), Some("true"));
    let id = lab.id("order-1");
    let found = lab.get(&format!("operations/{id}"));
    assert_eq!(
        (&found["response"]["body"], &found["response"]["status"]),
        (&json!("charged"), &json!(201))
    );
    let forgotten =
        lab.post(&format!("operations/{id}/forget"), &json!({"reason": "a test of the shop"}));
    assert_eq!(forgotten.status, 200, "{}", forgotten.body);
    let again = lab.send("/pay", "order-1");
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, None));
    assert_eq!(lab.service.executions("order-1"), 2);
}

#[test]
fn what_a_state_forbids_and_what_says_no_reason_is_refused() {
    let lab = Lab::start();
    let unknown = lab.unknown("order-1");
    assert_eq!(lab.send("/pay", "order-2").status, 201);
    let completed = lab.id("order-2");
    let reason = json!({"reason": "r"});
    let answer = json!({"reason": "r", "status": 200});
    let refused = |path: String, body: &Value| {
        let answer = lab.post(&path, body);
        (answer.status, answer.code())
    };
    let forbidden = (409, "state_forbids".to_owned());
    assert_eq!(refused(format!("operations/{unknown}/forget"), &reason), forbidden);
    assert_eq!(
        refused(format!("operations/{completed}/release"), &json!({"reason": "r", "force": true})),
        forbidden
    );
    assert_eq!(refused(format!("operations/{completed}/settle"), &answer), forbidden);
    let bad = (400, "bad_request".to_owned());
    for body in [
        json!({}),
        json!({"reason": ""}),
        json!({"reason": " \t"}),
        json!({"reason": 7}),
        json!([]),
    ] {
        assert_eq!(refused(format!("operations/{completed}/forget"), &body), bad, "{body}");
    }
    assert_eq!(refused(format!("operations/{unknown}/settle"), &reason), bad);
    assert_eq!(
        refused(format!("operations/{unknown}/release"), &json!({"reason": "r", "forced": true})),
        bad
    );
    let nothing = (404, "not_found".to_owned());
    assert_eq!(
        refused("operations/00000000000000000000000000000000/forget".to_owned(), &reason),
        nothing
    );
    assert_eq!(refused("operations/short/forget".to_owned(), &reason), nothing);
}

#[test]
fn the_first_view_counts_what_happened() {
    let lab = Lab::start();
    lab.unknown("order-1");
    for _ in 0..3 {
        lab.send("/pay", "order-2");
    }
    // Hot keys are counted from the events, which come a moment after the answer.
    let summary = lab.get_when("summary", |summary| summary["hot_keys"][0]["count"] == 2);
    assert_eq!(summary["counts"]["executed"], 2);
    assert_eq!(summary["duplicates_prevented"], json!({"since_start": 2, "today": 2}));
    assert_eq!(
        (&summary["store"]["kind"], &summary["store"]["ready"]),
        (&json!("sqlite"), &json!(true))
    );
    assert_eq!(summary["hot_keys"][0]["key"], "order-2");
    assert_eq!(summary["routes"][0]["replayed"], 2);
    assert_eq!(summary["listen"], format!("http://{}", lab.address));
    assert_eq!(lab.get("policy")["policy"]["ttl"], "1d");
}

// threat K32
#[test]
fn an_owner_that_is_told_unknown_is_counted_and_so_is_each_retry() {
    let lab = Lab::start();
    for told in 1..=3 {
        let answer = lab.send("/hangs-up", "order-1");
        assert!(answer.body.contains("idempotency_outcome_unknown"), "{answer:?}");
        let page = ask(&lab.admin, "GET", "/metrics", "", "").body;
        let line = format!("onlyonce_unknown_total{{route=\"default\"}} {told}\n");
        assert!(page.contains(&line), "{told}: {page}");
    }
    assert_eq!(lab.service.executions("order-1"), 1);
}
