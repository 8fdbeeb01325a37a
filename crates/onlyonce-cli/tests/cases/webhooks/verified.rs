//! Deliveries that are verified before their key is claimed.

use super::sender::{
    FORGED, OLD_SECRET, SECRET, delivery, github, gitlab, linear, seconds, shopify, standard,
    stripe, twilio, twilio_json,
};
use crate::client::Ask;
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, B2, on_gateway, until};

on_gateway! {
    whk_01, whk_02, whk_03,
    standard_webhooks_in_any_secret, standard_webhooks_to_another_host,
    stripe_events, stripe_events_with_another_count, github_events, github_ids_are_not_trusted,
    gitlab_events, twilio_calls, twilio_bodies_that_are_no_forms, shopify_events, linear_events,
    linear_ids_are_not_trusted, whk_05, cloud_events_in_the_body,
    a_delivery_without_an_id_is_refused, a_key_that_is_no_header_is_told_to_the_service,
    nobody_is_told_the_state_of_a_delivery, a_duplicate_waits_where_the_route_says_so, no_secret_is_told,
}

/// A route for the deliveries of this provider.
fn route(provider: &str) -> Set {
    webhook(&format!("provider = {provider:?}, secrets = [\"env:HOOK\", \"env:HOOK_OLD\"]"), "")
}

fn webhook(table: &str, more: &str) -> Set {
    let head = "[[route]]\nmatch = \"POST /hooks\"\npreset = \"webhook\"\n";
    Set::Toml(format!("{head}webhook = {{ {table} }}\n{more}\n").leak())
}

/// Refused with 401, and its key is not claimed.
async fn is_refused(t: &Subject, ask: &Ask) {
    let before = t.u.total();
    let problem = t.send(ask).await.problem(401, "webhook_signature_invalid");
    assert_eq!(problem["retry"], "never");
    assert_eq!(t.u.total(), before);
}

/// Executed once, and answered 2xx each time.
async fn has_one_effect(t: &Subject, deliveries: &[Ask]) {
    let before = t.u.total();
    let first = t.send(&deliveries[0]).await.fresh(201);
    for again in &deliveries[1..] {
        t.send(again).await.replays(&first);
    }
    assert_eq!(t.u.total(), before + 1);
}

// R141: the id is the key; the timestamp and the signature are new with every delivery.
// threat J7
async fn whk_01(on: Kind) {
    let t = on.start(&[route("standard")]).await;
    let deliveries = [-2, -1, 0].map(|at| standard("msg_1", B1, seconds(at), SECRET));
    has_one_effect(&t, &deliveries).await;
    // The upstream can verify the delivery itself.
    let seen = t.u.seen().remove(0).headers;
    assert_eq!(seen["webhook-id"], "msg_1");
    assert!(seen.contains_key("webhook-signature"));
}

// R141; threat J8
async fn whk_02(on: Kind) {
    let t = on.start(&[route("standard")]).await;
    let now = seconds(0);
    is_refused(&t, &standard("msg_1", B1, now, FORGED)).await;
    is_refused(&t, &delivery(B1).header("webhook-id", "msg_1")).await;
    let other_id = standard("msg_2", B1, now, SECRET).replaced("webhook-id", "msg_1");
    is_refused(&t, &other_id).await;
    has_one_effect(&t, &[standard("msg_1", B1, now, SECRET)]).await;
    // Nor does a known id open the way.
    is_refused(&t, &standard("msg_1", B1, now, FORGED)).await;
}

// R141
async fn whk_03(on: Kind) {
    let t = on.start(&[route("standard")]).await;
    for late in [-310, 310] {
        is_refused(&t, &standard("msg_1", B1, seconds(late), SECRET)).await;
    }
    has_one_effect(&t, &[standard("msg_1", B1, seconds(-240), SECRET)]).await;
}

async fn standard_webhooks_in_any_secret(on: Kind) {
    let t = on.start(&[route("standard")]).await;
    let now = seconds(0);
    let deliveries = [OLD_SECRET, SECRET].map(|secret| standard("msg_1", B1, now, secret));
    has_one_effect(&t, &deliveries).await;
}

/// The host is not signed, so that it tells no two events apart. Nor do credentials.
async fn standard_webhooks_to_another_host(on: Kind) {
    let t = on.start(&[route("standard")]).await;
    let now = seconds(0);
    let genuine = standard("msg_1", B1, now, SECRET);
    let elsewhere = genuine.clone().replaced("Host", "elsewhere.example");
    let with_cookie = genuine.clone().header("Cookie", "session=1");
    let with_token = genuine.clone().tenant("b");
    has_one_effect(&t, &[genuine, elsewhere, with_cookie, with_token]).await;
}

const EVENT: &str = r#"{"id":"evt_1","object":"event","pending_webhooks":2}"#;

async fn stripe_events(on: Kind) {
    let t = on.start(&[route("stripe")]).await;
    is_refused(&t, &stripe(EVENT, seconds(0), FORGED)).await;
    is_refused(&t, &stripe(EVENT, seconds(-310), SECRET)).await;
    is_refused(&t, &stripe(EVENT, seconds(310), SECRET)).await;
    is_refused(&t, &delivery(EVENT)).await;
    let deliveries = [
        stripe(EVENT, seconds(-1), SECRET),
        stripe(EVENT, seconds(0), SECRET),
        stripe(EVENT, seconds(0), OLD_SECRET),
    ];
    has_one_effect(&t, &deliveries).await;
    let other = EVENT.replace("evt_1", "evt_2");
    has_one_effect(&t, &[stripe(&other, seconds(0), SECRET)]).await;
}

/// Stripe says in the event how many deliveries of it are still to come.
async fn stripe_events_with_another_count(on: Kind) {
    let t = on.start(&[route("stripe")]).await;
    let later = EVENT.replace('2', "1");
    let now = seconds(0);
    has_one_effect(&t, &[stripe(EVENT, now, SECRET), stripe(&later, now, SECRET)]).await;
}

// R143
async fn github_events(on: Kind) {
    let t = on.start(&[route("github")]).await;
    let with_id =
        |ask: Ask| ask.header("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    is_refused(&t, &with_id(github(B1, FORGED))).await;
    is_refused(&t, &with_id(delivery(B1))).await;
    let deliveries = [SECRET, SECRET, OLD_SECRET].map(|secret| with_id(github(B1, secret)));
    has_one_effect(&t, &deliveries).await;
    has_one_effect(&t, &[with_id(github(B2, SECRET))]).await;
}

/// GitHub does not sign its id, nor any other header.
async fn github_ids_are_not_trusted(on: Kind) {
    let t = on.start(&[route("github")]).await;
    let with_id = |id: &str| github(B1, SECRET).header("X-GitHub-Delivery", id);
    has_one_effect(&t, &[with_id("1"), with_id("2"), github(B1, SECRET)]).await;
    // Neither does another media type or query run it again.
    for again in [with_id("1").media("text/plain"), with_id("1").to("/hooks?again")] {
        t.send(&again).await.problem(422, "idempotency_key_reused");
    }
    assert_eq!(t.u.total(), 1);
}

// R145
async fn gitlab_events(on: Kind) {
    let t = on.start(&[route("gitlab")]).await;
    is_refused(&t, &gitlab(B1, "1", FORGED)).await;
    is_refused(&t, &delivery(B1).key("1")).await;
    let deliveries = [SECRET, SECRET, OLD_SECRET].map(|secret| gitlab(B1, "1", secret));
    has_one_effect(&t, &deliveries).await;
    // Two events may have the same body, and X-Gitlab-Event-UUID is that of the chain of events.
    let second = gitlab(B1, "2", SECRET).header("X-Gitlab-Event-UUID", "1");
    has_one_effect(&t, &[second]).await;
    let stripped = delivery(B1).header("X-Gitlab-Token", SECRET);
    t.send(&stripped).await.problem(400, "idempotency_key_missing");
}

fn twilio_route() -> Set {
    let secrets = "secrets = [\"env:HOOK\", \"env:HOOK_OLD\"]";
    webhook(&format!("provider = \"twilio\", url = \"https://hooks.example.com\", {secrets}"), "")
}

// R145
async fn twilio_calls(on: Kind) {
    let t = on.start(&[twilio_route()]).await;
    let fields = [("MessageSid", "SM1"), ("MessageStatus", "delivered")];
    is_refused(&t, &twilio(&fields, "1", FORGED)).await;
    is_refused(&t, &delivery(B1).header("I-Twilio-Idempotency-Token", "1")).await;
    is_refused(&t, &twilio(&fields, "1", SECRET).to("/hooks?more")).await;
    let deliveries = [SECRET, SECRET, OLD_SECRET].map(|secret| twilio(&fields, "1", secret));
    has_one_effect(&t, &deliveries).await;
    has_one_effect(&t, &[twilio(&fields, "2", SECRET)]).await;
    let stripped = twilio(&fields, "1", SECRET).without("I-Twilio-Idempotency-Token");
    t.send(&stripped).await.problem(400, "idempotency_key_missing");
}

async fn twilio_bodies_that_are_no_forms(on: Kind) {
    let t = on.start(&[twilio_route()]).await;
    is_refused(&t, &twilio_json(B1, "1", FORGED)).await;
    is_refused(&t, &twilio_json(B1, "1", SECRET).saying(B2)).await;
    is_refused(&t, &twilio_json(B1, "1", SECRET).to("/hooks")).await;
    has_one_effect(&t, &[SECRET, SECRET].map(|secret| twilio_json(B1, "1", secret))).await;
}

async fn shopify_events(on: Kind) {
    let t = on.start(&[route("shopify")]).await;
    is_refused(&t, &shopify(B1, "orders/create", "1", FORGED)).await;
    is_refused(&t, &shopify(B1, "orders/create", "1", SECRET).saying(B2)).await;
    let deliveries = [("a", SECRET), ("b", SECRET), ("c", OLD_SECRET)].map(|(webhook, secret)| {
        shopify(B1, "orders/create", "1", secret).header("X-Shopify-Webhook-Id", webhook)
    });
    has_one_effect(&t, &deliveries).await;
    // One change in a shop is told under several topics.
    has_one_effect(&t, &[shopify(B1, "orders/paid", "1", SECRET)]).await;
    let stripped = shopify(B1, "orders/create", "1", SECRET).without("X-Shopify-Event-Id");
    t.send(&stripped).await.problem(400, "idempotency_key_missing");
}

async fn linear_events(on: Kind) {
    let t = on.start(&[route("linear")]).await;
    is_refused(&t, &linear("1", seconds(0), FORGED)).await;
    is_refused(&t, &linear("1", seconds(-310), SECRET)).await;
    is_refused(&t, &linear("1", seconds(310), SECRET)).await;
    let deliveries = [(-2, SECRET), (-1, SECRET), (0, OLD_SECRET)];
    let deliveries = deliveries.map(|(at, secret)| linear("1", seconds(at), secret));
    has_one_effect(&t, &deliveries).await;
    has_one_effect(&t, &[linear("2", seconds(0), SECRET)]).await;
}

async fn linear_ids_are_not_trusted(on: Kind) {
    let t = on.start(&[route("linear")]).await;
    let now = seconds(0);
    let with_id = |id: &str| linear("1", now, SECRET).header("Linear-Delivery", id);
    has_one_effect(&t, &[with_id("1"), with_id("2"), linear("1", now, SECRET)]).await;
}

// R144
async fn whk_05(on: Kind) {
    let t = on.start(&[webhook("provider = \"cloudevents\"", "")]).await;
    let event = |source: &str, id: &str| {
        delivery(B1).header("ce-specversion", "1.0").header("ce-source", source).header("ce-id", id)
    };
    has_one_effect(&t, &[event("/a", "1")]).await;
    has_one_effect(&t, &[event("/b", "1"), event("/b", "1")]).await;
    t.send(&event("/a", "1").without("ce-source")).await.problem(400, "idempotency_key_missing");
    assert_eq!(t.u.total(), 2);
}

// R144
async fn cloud_events_in_the_body(on: Kind) {
    let t = on.start(&[webhook("provider = \"cloudevents\"", "")]).await;
    let event = |source: &str, id: &str| {
        let body = format!(r#"{{"specversion":"1.0","type":"t","source":"{source}","id":"{id}"}}"#);
        delivery(&body).media("application/cloudevents+json; charset=utf-8")
    };
    has_one_effect(&t, &[event("/a", "1"), event("/a", "1")]).await;
    has_one_effect(&t, &[event("/b", "1")]).await;
    let batch = delivery("[]").media("application/cloudevents-batch+json");
    t.send(&batch).await.problem(400, "idempotency_key_missing");
}

// R148: a sender that takes 409 for a failure waits for the answer of the first delivery instead.
async fn a_duplicate_waits_where_the_route_says_so(on: Kind) {
    let table = "provider = \"github\", secrets = [\"env:HOOK\"]";
    let t = on.start(&[webhook(table, "in_flight = \"wait\"\nwait = \"30s\"")]).await;
    let gate = Gate::new();
    t.u.plan("/hooks", [Reply::created().behind(&gate)]);
    let ask = github(B1, SECRET);
    let (first, second) = tokio::join!(t.send(&ask), async {
        until("the execution", || t.u.total() == 1).await;
        let (second, ()) = tokio::join!(t.send(&ask), async {
            t.until_waiting(1).await;
            gate.open();
        });
        second
    });
    second.replays(&first.fresh(201));
    assert_eq!(t.u.total(), 1);
}

async fn a_delivery_without_an_id_is_refused(on: Kind) {
    let t = on.start(&[route("standard")]).await;
    t.send(&delivery(B1)).await.problem(400, "idempotency_key_missing");
    let t = on.start(&[route("stripe")]).await;
    let without = stripe(B1, seconds(0), SECRET);
    t.send(&without).await.problem(400, "idempotency_key_missing");
    assert_eq!(t.u.total(), 0);
}

/// Whatever else the sender puts there: it is not signed.
async fn a_key_that_is_no_header_is_told_to_the_service(on: Kind) {
    for (provider, ask, key) in [
        ("stripe", stripe(EVENT, seconds(0), SECRET), Some("evt_1")),
        ("github", github(B1, SECRET), None),
        ("linear", linear("1", seconds(0), SECRET), None),
    ] {
        let t = on.start(&[route(provider)]).await;
        has_one_effect(&t, &[ask.clone(), ask.clone().header("Idempotency-Key", "another")]).await;
        let told = t.u.seen().remove(0).headers["idempotency-key"].clone();
        assert!(key.is_none_or(|key| told == key) && told.len() >= 5, "{told:?}");

        let t = on.start(&[route(provider)]).await;
        has_one_effect(&t, &[ask.header("Idempotency-Key", "another")]).await;
        let headers = t.u.seen().remove(0).headers;
        let all: Vec<_> = headers.get_all("idempotency-key").iter().collect();
        assert_eq!(all, [&told], "{provider}");
    }
}

async fn nobody_is_told_the_state_of_a_delivery(on: Kind) {
    let t = on.start(&[route("standard")]).await;
    has_one_effect(&t, &[standard("msg_1", B1, seconds(0), SECRET)]).await;
    let path = "/.well-known/idempotency/operation?method=POST&path=/hooks";
    let ask = Ask::bare("GET", path).header("webhook-id", "msg_1");
    t.send(&ask).await.problem(404, "idempotency_operation_not_found");
}

async fn no_secret_is_told(on: Kind) {
    let t = on.start(&[route("github")]).await;
    let refused = t.send(&github(B1, FORGED)).await;
    t.send(&github(B1, SECRET)).await.fresh(201);
    let text = String::from_utf8(refused.body.to_vec()).unwrap();
    let told = text + &t.end_and_read_logs().await;
    for secret in [SECRET, OLD_SECRET] {
        assert!(!told.contains(secret.strip_prefix("whsec_").unwrap()), "{told}");
    }
}
