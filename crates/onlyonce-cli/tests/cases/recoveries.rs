//! Recoveries rely on the key that the upstream saw: it is the same at each attempt, and it is what is asked for.

use crate::client::Ask;
use crate::profile::{Profile, Set};
use crate::reply::Reply;
use crate::subject::{Kind, Subject};
use crate::{B1, K1, on_gateway, until};

on_gateway! {
    a_redrive_without_a_client_key_carries_a_key, a_redrive_spells_the_key_in_one_way,
    a_redrive_of_a_key_in_the_body_carries_it_in_the_header, a_redrive_carries_the_key_in_the_header_of_its_route,
    a_redrive_with_a_key_that_ends_at_this_hop_is_refused, what_was_sent_is_what_is_asked_about,
    what_was_sent_is_asked_about_after_a_crash, what_was_sent_by_other_rules_is_not_asked_about,
    what_was_sent_by_other_rules_is_not_sent_again, a_quoted_key_that_is_not_found_stays_held, a_derived_key_is_asked_for_as_it_was_forwarded,
}

const REDRIVE: &str = r#"recovery = "redrive""#;

/// The key that each attempt of `/t` carried to the upstream.
async fn redriven(on: Kind, profile: Profile<'_>, first: Ask, second: Ask) -> Vec<Option<String>> {
    let t = on.start(profile).await;
    t.u.plan("/t", [Reply::reset(), Reply::created()]);
    t.send(&first).await.problem(502, "idempotency_outcome_unknown");
    t.send(&second).await.fresh(201);
    let seen = t.u.seen();
    seen.iter().map(|seen| seen.header("idempotency-key").map(str::to_owned)).collect()
}

// threat K5
async fn a_redrive_without_a_client_key_carries_a_key(on: Kind) {
    for sources in [&["fingerprint"][..], &["header:Idempotency-Key", "fingerprint"]] {
        let profile = [Set::Toml(REDRIVE), Set::KeyFrom(sources)];
        let ask = Ask::post(B1);
        let keys = redriven(on, &profile, ask.clone(), ask).await;
        assert!(keys[0].as_ref().is_some_and(|key| key.len() == 64), "{keys:?}");
        assert_eq!(keys[0], keys[1]);
    }
}

// threat K5
async fn a_redrive_spells_the_key_in_one_way(on: Kind) {
    let ask = |key: &str| Ask::post(B1).key(key);
    let profile = [Set::Toml(REDRIVE)];
    let keys = redriven(on, &profile, ask("\"order-17\""), ask("order-17")).await;
    assert_eq!(keys, [Some("order-17".to_owned()), Some("order-17".to_owned())]);
    // What cannot stand bare is quoted each time.
    let keys = redriven(on, &profile, ask("\"a b\\\"c\";x=1"), ask("\"a b\\\"c\"")).await;
    assert_eq!(keys, [Some("\"a b\\\"c\"".to_owned()), Some("\"a b\\\"c\"".to_owned())]);
    let strict = [Set::Toml(REDRIVE), Set::Strict];
    let keys = redriven(on, &strict, ask("\"order-17\""), ask("\"order-17\"")).await;
    assert_eq!(keys, [Some("\"order-17\"".to_owned()), Some("\"order-17\"".to_owned())]);
}

// The header that the client adds or leaves out counts nowhere, so the upstream must not see it change.
async fn a_redrive_of_a_key_in_the_body_carries_it_in_the_header(on: Kind) {
    let profile = [Set::Toml(REDRIVE), Set::KeyFrom(&["json:/id"])];
    let ask = Ask::post(r#"{"id":"k-1"}"#);
    let keys = redriven(on, &profile, ask.clone().key("one"), ask.key("two")).await;
    assert_eq!(keys, [Some("k-1".to_owned()), Some("k-1".to_owned())]);
}

async fn a_redrive_carries_the_key_in_the_header_of_its_route(on: Kind) {
    let profile = [Set::Toml(REDRIVE), Set::KeyFrom(&["header:X-Ref"])];
    let t = on.start(&profile).await;
    t.u.plan("/t", [Reply::reset(), Reply::created()]);
    let ask = Ask::post(B1).header("X-Ref", "\"order-17\"");
    t.send(&ask).await.problem(502, "idempotency_outcome_unknown");
    t.send(&Ask::post(B1).header("X-Ref", "order-17")).await.fresh(201);
    let keys: Vec<_> =
        t.u.seen().iter().map(|seen| seen.header("x-ref").map(str::to_owned)).collect();
    assert_eq!(keys, [Some("order-17".to_owned()), Some("order-17".to_owned())]);
    // A derived key is the same one each time too.
    let lines = "recovery = \"redrive\"\nforward_key = \"derive\"";
    let keys =
        redriven(on, &[Set::Toml(lines)], Ask::post(B1).key(K1), Ask::post(B1).key(K1)).await;
    assert!(keys[0].as_ref().is_some_and(|key| key != K1), "{keys:?}");
    assert_eq!(keys[0], keys[1]);
}

// A field that `Connection` names is not passed on, and the upstream could not dedup on it.
// threat K5
async fn a_redrive_with_a_key_that_ends_at_this_hop_is_refused(on: Kind) {
    let ask = Ask::post(r#"{"id":"k-1"}"#).key(K1).header("Connection", "Idempotency-Key");
    for sources in [&["header:Idempotency-Key"][..], &["json:/id"]] {
        let t = on.start(&[Set::Toml(REDRIVE), Set::KeyFrom(sources)]).await;
        t.send(&ask).await.problem(400, "request_ambiguous");
        assert_eq!(t.u.total(), 0, "{sources:?}");
    }
}

/// What the upstream is asked, once it was asked.
async fn asked(t: &Subject) -> (String, Option<String>) {
    let is_ask = |seen: &crate::upstream::Seen| seen.method == "GET";
    until("the question", || t.u.seen().iter().any(is_ask)).await;
    let seen = t.u.seen();
    let ask = seen.iter().find(|seen| is_ask(seen)).expect("it came");
    (ask.target.clone(), ask.header("host").map(str::to_owned))
}

const BY_PATH: &str = r#"
[[route]]
match = "POST /accounts/{account}/charges"
paths = "literal"
recovery = "reconcile"
reconcile = { ask = "GET /accounts/{account}/charges?key={key}", found = "/0/id" }
"#;

// threat K4
async fn what_was_sent_is_what_is_asked_about(on: Kind) {
    let t = on.start(&[Set::Toml(BY_PATH)]).await;
    let path = "/accounts/a%2Fb/charges";
    t.u.plan(path, [Reply::reset(), Reply::status(200).body(r#"[{"id":"ch_1"}]"#)]);
    let ask = Ask::post(B1).to(path).key(format!("\"{K1}\"")).tenant("ann");
    t.send(&ask).await.problem(502, "idempotency_outcome_unknown");
    let found = t.send(&ask).await;
    assert_eq!((found.status, found.all("idempotent-replayed")), (200, vec!["true"]));
    let sent = t.u.seen()[0].clone();
    assert_eq!(sent.header("idempotency-key"), Some(K1), "in the spelling that is asked for");
    let (target, host) = asked(&t).await;
    assert_eq!(target, format!("/accounts/a%2Fb/charges?key={K1}"));
    assert_eq!(host.as_deref(), sent.header("host"));
    assert_eq!(host.as_deref(), Some("api.test"));
}

const IN_THE_BACKGROUND: &str = r#"
[[route]]
match = "POST /accounts/{account}/charges"
recovery = "reconcile"
forward_key = "derive"
reconcile = { ask = "GET /accounts/{account}/charges?key={key}", found = "/0/id", auth = "Bearer ours" }
"#;

async fn what_was_sent_is_asked_about_after_a_crash(on: Kind) {
    let mut t = on.start(&[Set::Toml(IN_THE_BACKGROUND)]).await;
    let gate = crate::reply::Gate::new();
    let found = Reply::status(200).body(r#"[{"id":"ch_1"}]"#);
    t.u.plan("/accounts/7/charges", [Reply::created().behind(&gate), found]);
    let ask = Ask::post(B1).to("/accounts/7/charges").key(K1).tenant("ann");
    let mut connection = t.connect().await;
    connection.0.write(&ask.bytes()).await.unwrap();
    until("the execution", || t.u.total() == 1).await;
    t.kill_and_restart().await;
    let (target, host) = asked(&t).await;
    let sent = t.u.seen()[0].clone();
    let key = sent.header("idempotency-key").expect("it is forwarded");
    assert_ne!(key, K1);
    assert_eq!(target, format!("/accounts/7/charges?key={key}"));
    assert_eq!(host.as_deref(), Some("api.test"));
    let asked = t.u.seen().into_iter().find(|seen| seen.method == "GET").expect("it was asked");
    assert_eq!(asked.header("authorization"), Some("Bearer ours"));
    // What was found is the outcome, before any client comes back.
    let replay = settled(&t, &ask).await;
    assert_eq!((replay.status, &replay.body[..]), (200, &br#"[{"id":"ch_1"}]"#[..]));
    let asked = t.u.seen().iter().filter(|seen| seen.method == "GET").count();
    assert_eq!((asked, t.u.total() - asked), (1, 1), "asked once, executed once");
}

/// The replay of an operation that is settled in the background.
async fn settled(t: &Subject, ask: &Ask) -> crate::answer::Answer {
    let look_up = "/.well-known/idempotency/operation?method=POST&path=/accounts/7/charges";
    let look_up = Ask::bare("GET", look_up).key(K1).tenant("ann");
    crate::within("the outcome", async {
        while t.send(&look_up).await.json()["state"] != "completed" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let answer = t.send(ask).await;
    assert_eq!(answer.all("idempotent-replayed"), ["true"]);
    answer
}

/// An operation that was sent by the first of these rules, and is asked for by the second: it stays held.
async fn is_held_after(on: Kind, before: &'static str, after: &'static str) {
    let mut t = on.start(&[Set::Toml(before)]).await;
    t.u.plan("/t", [Reply::reset()]);
    t.u.plan("/charges", [Reply::status(404)]);
    let ask = Ask::post(B1).key(format!("\"{K1}\""));
    t.send(&ask).await.problem(502, "idempotency_outcome_unknown");
    t.reconfigure(&[Set::Toml(after)]).await;
    for _ in 0..3 {
        t.send(&ask).await.problem(409, "idempotency_outcome_unknown");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert_eq!(
        (t.u.count("/t"), t.u.count("/charges")),
        (1, 0),
        "nothing is asked, nothing is sent"
    );
}

const RELEASING: &str = r#"lease = "100ms"
upstream_timeout = "200ms"
recovery = "reconcile"
reconcile = { ask = "GET /charges?key={key}", found = "/0/id", absent = "release", quiet = "500ms" }"#;
const RELEASING_DERIVED: &str = r#"lease = "100ms"
upstream_timeout = "200ms"
recovery = "reconcile"
forward_key = "derive"
reconcile = { ask = "GET /charges?key={key}", found = "/0/id", absent = "release", quiet = "500ms" }"#;

// Two 404s for a question about something else would free the key of what was executed.
// threat K4
async fn what_was_sent_by_other_rules_is_not_asked_about(on: Kind) {
    is_held_after(on, r#"upstream_timeout = "200ms""#, RELEASING).await;
    is_held_after(on, RELEASING, RELEASING_DERIVED).await;
}

// The upstream would not know the operation again by another key.
async fn what_was_sent_by_other_rules_is_not_sent_again(on: Kind) {
    is_held_after(on, REDRIVE, "recovery = \"redrive\"\nforward_key = \"derive\"").await;
    is_held_after(on, "forward_key = \"strip\"", REDRIVE).await;
    is_held_after(on, "ttl = \"23h\"", REDRIVE).await;
    is_held_after(on, REDRIVE, "recovery = \"redrive\"\nkey_syntax = \"strict\"").await;
}

// The upstream may know such a key with its quotes, and be asked for it without.
async fn a_quoted_key_that_is_not_found_stays_held(on: Kind) {
    let t = on.start(&[Set::Toml(RELEASING)]).await;
    t.u.plan("/t", [Reply::reset()]);
    t.u.plan("/charges", [Reply::status(404)]);
    let ask = Ask::post(B1).key("\"a b\"");
    t.send(&ask).await.problem(502, "idempotency_outcome_unknown");
    for _ in 0..5 {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        t.send(&ask).await.problem(409, "idempotency_outcome_unknown");
    }
    assert!(t.u.count("/charges") >= 2, "it was asked for");
    assert_eq!(t.u.count("/t"), 1);
}

// threat K4
async fn a_derived_key_is_asked_for_as_it_was_forwarded(on: Kind) {
    let lines = r#"recovery = "reconcile"
forward_key = "derive"
reconcile = { ask = "GET /charges?key={key}", found = "/0/id" }"#;
    let t = on.start(&[Set::Toml(lines)]).await;
    t.u.plan("/t", [Reply::reset()]);
    t.u.plan("/charges", [Reply::status(404)]);
    let ask = Ask::post(B1).key(K1);
    t.send(&ask).await.problem(502, "idempotency_outcome_unknown");
    t.send(&ask).await.problem(409, "idempotency_outcome_unknown");
    let sent = t.u.seen()[0].clone();
    let key = sent.header("idempotency-key").expect("it is forwarded");
    assert_eq!(asked(&t).await.0, format!("/charges?key={key}"));
}
