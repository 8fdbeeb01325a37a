//! Tokens: keys that the server makes.

use std::sync::Arc;
use std::time::Duration;

use onlyonce::clock::{Clock, StoreTime, SystemClock};
use serde_json::Value;

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, B2, K1, on_both, on_gateway, until, within};

on_both! {
    tok_01,
    tok_02,
    tok_03,
    a_token_is_issued_as_a_key_that_expires_before_its_answer,
    a_used_token_is_a_key_like_any_other,
    a_token_that_was_changed_is_refused,
    a_token_for_another_operation_is_refused,
    every_refusal_of_a_token_is_the_same,
    a_token_that_expires_before_its_use_is_refused,
    a_token_that_expires_after_its_use_still_gets_its_answer,
    a_token_that_was_not_used_costs_nothing,
    the_same_context_gets_the_same_token,
    an_unclear_context_gets_none,
    optional_tokens_leave_room_for_keys_of_ones_own,
    a_request_that_needs_a_token_needs_a_key,
    tokens_are_off_by_default,
    a_token_that_was_not_executed_may_be_sent_again,
}
on_gateway! {
    a_token_for_another_route_is_refused,
    an_expired_token_is_answered_by_the_store_after_a_restart,
    credentials_are_judged_as_those_of_the_operation,
    routes_say_whether_they_have_tokens,
    the_path_of_tokens_is_the_services_own_where_no_route_has_them,
    a_token_of_http_2_is_good_over_http_1,
}

const REQUIRED: &[Set] = &[Set::Secret, Set::Tokens("required")];
const OPTIONAL: &[Set] = &[Set::Secret, Set::Tokens("optional")];

/// The request for a token for `POST /t`, by ann.
fn asking() -> Ask {
    asking_for("POST", "/t").tenant("ann")
}

fn asking_for(method: &str, path: &str) -> Ask {
    Ask::bare("POST", &format!("/idempotency-tokens?method={method}&path={path}"))
}

async fn issued(t: &Subject, ask: &Ask) -> Value {
    let answer = t.send(ask).await.fresh(201);
    assert_eq!(answer.all("content-type"), ["application/json"]);
    assert_eq!(answer.all("cache-control"), ["no-store"]);
    answer.json()
}

async fn token(t: &Subject) -> String {
    text(&issued(t, &asking()).await)
}

fn text(issued: &Value) -> String {
    issued["token"].as_str().expect("a token").to_owned()
}

fn expiry(issued: &Value) -> StoreTime {
    StoreTime::from_rfc3339(issued["expires_at"].as_str().expect("a time")).expect("RFC 3339")
}

fn post(key: &str) -> Ask {
    Ask::post(B1).tenant("ann").key(key)
}

async fn refused(t: &Subject, ask: &Ask) -> Value {
    t.send(ask).await.problem(400, "idempotency_key_invalid")
}

async fn until_after(moment: StoreTime) {
    until("the token has expired", || SystemClock.wall() > moment).await;
}

// R164, R166
async fn tok_01(on: Kind) {
    let t = on.start(REQUIRED).await;
    let token = token(&t).await;
    let first = t.send(&post(&token)).await.fresh(201);
    t.send(&post(&token)).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R166
async fn tok_02(on: Kind) {
    let t = on.start(REQUIRED).await;
    refused(&t, &post(K1)).await;
    assert_eq!((t.n(), t.records().await), (0, 0));
}

// R166, R186: whether ann has used it or not, bob is told the same as of a token that never was.
async fn tok_03(on: Kind) {
    let t = on.start(REQUIRED).await;
    let (used, unused) = (token(&t).await, token(&t).await);
    t.send(&post(&used)).await.fresh(201);
    let bob = |key: &str| Ask::post(B1).tenant("bob").key(key);
    let of_unknown = t.send(&bob(&format!("oot1_{}", "0".repeat(80)))).await;
    of_unknown.problem(400, "idempotency_key_invalid");
    for token in [&used, &unused] {
        let of_anns = t.send(&bob(token)).await;
        assert_eq!((of_anns.status, &of_anns.body), (400, &of_unknown.body));
    }
    // Nor is a caller without credentials told more.
    refused(&t, &Ask::post(B1).key(&used)).await;
    assert_eq!(t.n(), 1);
}

// R164
async fn a_token_is_issued_as_a_key_that_expires_before_its_answer(on: Kind) {
    let t = on.start(&[REQUIRED, &[Set::TtlMs(3_600_000)]].concat()).await;
    let before = SystemClock.wall();
    let issued = issued(&t, &asking()).await;
    let life = |from: StoreTime| expiry(&issued).since_ms(from);
    // A second for what the clock of the store is behind.
    assert!(life(before) >= 3_539_000, "{issued}");
    assert!(life(SystemClock.wall()) <= 3_540_000, "{issued}");
    let token = text(&issued);
    assert!(token.starts_with("oot1_") && token.len() == 85, "{token}");
    // With quotes or without them, it is one key.
    let first = t.send(&post(&token)).await.fresh(201);
    t.send(&post(&format!("\"{token}\""))).await.replays(&first);
}

// R166
async fn a_used_token_is_a_key_like_any_other(on: Kind) {
    let t = Arc::new(on.start(REQUIRED).await);
    let token = token(&t).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let running = tokio::spawn({
        let (t, ask) = (t.clone(), post(&token));
        async move { t.send(&ask).await }
    });
    until("it runs", || t.n() == 1).await;
    t.send(&post(&token)).await.problem(409, "idempotency_in_progress");
    gate.open();
    let first = within("its answer", running).await.unwrap().fresh(201);
    let other = Ask::post(B2).tenant("ann").key(&token);
    t.send(&other).await.problem(422, "idempotency_key_reused");
    t.send(&post(&token)).await.replays(&first);
    assert_eq!(t.n(), 1);
}

// R166
async fn a_token_that_was_changed_is_refused(on: Kind) {
    let t = on.start(REQUIRED).await;
    let token = token(&t).await;
    let mut connection = t.connect().await;
    for place in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
        let answer = connection.send(&post(str::from_utf8(&changed).unwrap())).await.unwrap();
        answer.problem(400, "idempotency_key_invalid");
    }
    // Other spellings of the same bytes would be other keys.
    refused(&t, &post(&format!("oot1_{}", token[5..].to_uppercase()))).await;
    refused(&t, &post(&token[..84])).await;
    refused(&t, &post(&format!("{token}0"))).await;
    assert_eq!((t.n(), t.records().await), (0, 0));
    t.send(&post(&token)).await.fresh(201);
}

// R164: one token is for one operation, not for one on each path of a route.
async fn a_token_for_another_operation_is_refused(on: Kind) {
    let t = on.start(REQUIRED).await;
    let token = token(&t).await;
    refused(&t, &post(&token).to("/other")).await;
    refused(&t, &post(&token).method("PATCH")).await;
    assert_eq!(t.u.total(), 0);
    t.send(&post(&token)).await.fresh(201);
}

// R166, R186: the answers tell nothing about what is wrong.
async fn every_refusal_of_a_token_is_the_same(on: Kind) {
    let t = on.start(&[REQUIRED, &[Set::TtlMs(1_000)]].concat()).await;
    let issued = issued(&t, &asking()).await;
    let token = text(&issued);
    let forged = format!("{}0", &token[..84]);
    let forged = if forged == token { format!("{}1", &token[..84]) } else { forged };
    let mut details = vec![
        refused(&t, &post(K1)).await,
        refused(&t, &post(&forged)).await,
        refused(&t, &Ask::post(B1).tenant("bob").key(&token)).await,
        refused(&t, &post(&token).to("/other")).await,
    ];
    until_after(expiry(&issued)).await;
    details.push(refused(&t, &post(&token)).await);
    for detail in &details {
        assert_eq!(detail, &details[0]);
        assert_eq!(detail["retry"], "never");
    }
    assert_eq!(t.u.total(), 0);
}

// R166
async fn a_token_that_expires_before_its_use_is_refused(on: Kind) {
    let t = on.start(&[OPTIONAL, &[Set::TtlMs(1_000)]].concat()).await;
    let issued = issued(&t, &asking()).await;
    until_after(expiry(&issued)).await;
    refused(&t, &post(&text(&issued))).await;
    assert_eq!((t.n(), t.records().await), (0, 0));
}

// R166: a retry is not refused while its answer is kept, and never runs again afterwards.
async fn a_token_that_expires_after_its_use_still_gets_its_answer(on: Kind) {
    let t = Arc::new(on.start(&[REQUIRED, &[Set::TtlMs(3_000), Set::SweepMs(100)]].concat()).await);
    let issued = issued(&t, &asking()).await;
    let token = text(&issued);
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let running = tokio::spawn({
        let (t, ask) = (t.clone(), post(&token));
        async move { t.send(&ask).await }
    });
    until("it runs", || t.n() == 1).await;
    until_after(expiry(&issued)).await;
    t.send(&post(&token)).await.problem(409, "idempotency_in_progress");
    gate.open();
    let first = within("its answer", running).await.unwrap().fresh(201);
    t.send(&post(&token)).await.replays(&first);
    let other = Ask::post(B2).tenant("ann").key(&token);
    t.send(&other).await.problem(422, "idempotency_key_reused");
    within("the answer to expire", async {
        while t.send(&post(&token)).await.status == 201 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    refused(&t, &post(&token)).await;
    assert_eq!(t.n(), 1);
}

// R165: the reply to the first request for a token was lost.
async fn a_token_that_was_not_used_costs_nothing(on: Kind) {
    let t = on.start(REQUIRED).await;
    t.connect().await.0.write(&asking().bytes()).await.unwrap();
    let (one, two) = (token(&t).await, token(&t).await);
    assert_ne!(one, two);
    assert_eq!((t.records().await, t.u.total()), (0, 0));
    t.send(&post(&two)).await.fresh(201);
    assert_eq!((t.records().await, t.n()), (1, 1));
}

// R167
async fn the_same_context_gets_the_same_token(on: Kind) {
    let t = on.start(REQUIRED).await;
    let about = |context: &str| asking().header("Idempotency-Context", context);
    let (mut one, mut again) = (issued(&t, &about("1")).await, issued(&t, &about("1")).await);
    // The tokens of a context change every twelve hours, which may be just now.
    if one["expires_at"] != again["expires_at"] {
        (one, again) = (issued(&t, &about("1")).await, issued(&t, &about("1")).await);
    }
    assert_eq!(one, again);
    assert!(expiry(&one).since_ms(SystemClock.wall()) > 11 * 3_600_000, "{one}");
    let two = issued(&t, &about("2")).await;
    let of_bob = asking_for("POST", "/t").tenant("bob").header("Idempotency-Context", "1");
    for other in [text(&two), token(&t).await, text(&issued(&t, &of_bob).await)] {
        assert_ne!(text(&one), other);
    }
    let first = t.send(&post(&text(&one))).await.fresh(201);
    t.send(&post(&text(&again))).await.replays(&first);
    t.send(&post(&text(&two))).await.fresh(201);
    assert_eq!(t.n(), 2);
}

// R167: an empty context would make all operations of a caller one.
async fn an_unclear_context_gets_none(on: Kind) {
    let t = on.start(REQUIRED).await;
    let about = |context: &str| asking().header("Idempotency-Context", context);
    for ask in [about(""), about("  "), about("1").header("Idempotency-Context", "2")] {
        refused(&t, &ask).await;
    }
}

// R164, R166
async fn optional_tokens_leave_room_for_keys_of_ones_own(on: Kind) {
    let t = on.start(OPTIONAL).await;
    t.send(&post(K1)).await.fresh(201);
    t.send(&Ask::post(B1).tenant("ann")).await.fresh(201);
    t.send(&post(&token(&t).await)).await.fresh(201);
    let anns = token(&t).await;
    refused(&t, &Ask::post(B1).tenant("bob").key(&anns)).await;
    refused(&t, &post("oot1_made-by-myself")).await;
    assert_eq!(t.n(), 3);
}

// R164
async fn a_request_that_needs_a_token_needs_a_key(on: Kind) {
    let t = on.start(REQUIRED).await;
    let answer = t.send(&Ask::post(B1).tenant("ann")).await;
    let problem = answer.problem(400, "idempotency_key_missing");
    assert!(problem["detail"].as_str().unwrap().contains("POST /idempotency-tokens"), "{problem}");
    assert_eq!(t.n(), 0);
}

// R164
async fn tokens_are_off_by_default(on: Kind) {
    let t = on.start(D).await;
    // A key that looks like a token is a key.
    let first = t.send(&post("oot1_made-by-myself")).await.fresh(201);
    t.send(&post("oot1_made-by-myself")).await.replays(&first);
    let t = on.start(REQUIRED).await;
    // GET is not guarded.
    let answer = t.send(&asking_for("GET", "/t").tenant("ann")).await;
    answer.problem(404, "idempotency_tokens_not_issued");
}

async fn a_token_that_was_not_executed_may_be_sent_again(on: Kind) {
    let t = on.start(REQUIRED).await;
    t.u.plan("/t", [Reply::status(429), Reply::created()]);
    let token = token(&t).await;
    t.send(&post(&token)).await.fresh(429);
    let first = t.send(&post(&token)).await.fresh(201);
    t.send(&post(&token)).await.replays(&first);
    assert_eq!(t.n(), 2);
}

/// `/t` and `/u` have tokens, each its own; `/v` has none.
const ROUTES: &str = "[[route]]\nmatch = \"POST /t\"\ntokens = \"required\"\n\
                      [[route]]\nmatch = \"POST /u\"\ntokens = \"optional\"\nscope = [\"principal\"]\n\
                      [[route]]\nmatch = \"POST /w\"\ntokens = \"optional\"\nscope = [\"principal\"]\n";

// R164, R166
async fn a_token_for_another_route_is_refused(on: Kind) {
    let t = on.start(&[Set::Secret, Set::Toml(ROUTES)]).await;
    let mine = token(&t).await;
    refused(&t, &post(&mine).to("/u")).await;
    // The scope alone does not tell these two apart.
    let token = text(&issued(&t, &asking_for("POST", "/u").tenant("ann")).await);
    refused(&t, &post(&token).to("/t")).await;
    refused(&t, &post(&token).to("/w")).await;
    assert_eq!(t.u.total(), 0);
    t.send(&post(&token).to("/u")).await.fresh(201);
    // Where tokens are off, keys are opaque, and there is no token to get.
    t.send(&post(&mine).to("/v")).await.fresh(201);
    let answer = t.send(&asking_for("POST", "/v").tenant("ann")).await;
    answer.problem(404, "idempotency_tokens_not_issued");
    assert_eq!(t.u.total(), 2);
}

// R166: the cache of the first process is gone.
async fn an_expired_token_is_answered_by_the_store_after_a_restart(on: Kind) {
    let mut t = on.start(&[REQUIRED, &[Set::TtlMs(8_000)]].concat()).await;
    let issued = issued(&t, &asking()).await;
    // The answer is kept for much longer than the token lives.
    t.reconfigure(REQUIRED).await;
    let token = text(&issued);
    let first = t.send(&post(&token)).await.fresh(201);
    until_after(expiry(&issued)).await;
    t.kill_and_restart().await;
    t.send(&post(&token)).await.replays(&first);
    t.kill_and_restart().await;
    let other = Ask::post(B2).tenant("ann").key(&token);
    t.send(&other).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 1);
}

async fn credentials_are_judged_as_those_of_the_operation(on: Kind) {
    let t = on.start(REQUIRED).await;
    let unclear = t.send(&asking_for("POST", "/t").header("Cookie", "sid=1")).await;
    unclear.problem(400, "principal_unclear");
    // Nobody is a caller, too.
    let token = text(&issued(&t, &asking_for("POST", "/t")).await);
    refused(&t, &post(&token)).await;
    t.send(&Ask::post(B1).key(&token)).await.fresh(201);
    let t = on.start(&[REQUIRED, &[Set::Toml("anonymous = \"reject\"")]].concat()).await;
    assert_eq!(t.send(&asking_for("POST", "/t")).await.status, 401);
    assert_eq!(t.send(&Ask::bare("POST", "/idempotency-tokens").tenant("ann")).await.status, 400);
}

// R164, R193
async fn routes_say_whether_they_have_tokens(on: Kind) {
    let t = on.start(&[Set::Secret, Set::Toml(ROUTES)]).await;
    let document = t.send(&Ask::bare("GET", "/.well-known/idempotency")).await.fresh(200).json();
    let told = |route: usize| document["routes"][route]["tokens"].as_str().unwrap().to_owned();
    assert_eq!([told(0), told(1), told(3)], ["required", "optional", "off"]);
    assert_eq!(document["routes"][0]["key"]["required"], true);
}

async fn the_path_of_tokens_is_the_services_own_where_no_route_has_them(on: Kind) {
    let t = on.start(D).await;
    t.send(&asking()).await;
    assert_eq!(t.u.count("/idempotency-tokens"), 1);
}

// The host of an HTTP/2 request is in its address.
async fn a_token_of_http_2_is_good_over_http_1(on: Kind) {
    let t = on.start(REQUIRED).await;
    let issued = t.send_http2(&asking()).await.fresh(201).json();
    let first = t.send(&post(&text(&issued))).await.fresh(201);
    t.send_http2(&post(&text(&issued))).await.replays(&first);
}
