//! What a page from another origin can read of our answers.

use crate::answer::Answer;
use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::Reply;
use crate::subject::Kind;
use crate::{B1, B2, K1, on_both, on_gateway};

on_both! { a_stored_permission_is_for_the_origin_that_had_it }

on_gateway! {
    an_allowed_origin_reads_refusals_and_replays, another_origin_reads_nothing_of_ours,
    what_the_service_answers_stays_the_services_to_allow, any_origin_may_be_allowed_without_credentials,
}

const SHOP: &str = "https://shop.test";
const ALLOWED: &[Set] = &[Set::Toml(r#"cors = ["https://shop.test", "http://localhost:5173"]"#)];

fn from(origin: &str, body: &str) -> Ask {
    Ask::post(body).key(K1).header("Origin", origin)
}

fn allowed(answer: &Answer) -> Vec<&str> {
    answer.all("access-control-allow-origin")
}

#[track_caller]
fn is_readable(answer: &Answer, origin: &str) {
    assert_eq!(allowed(answer), [origin], "{answer:?}");
    assert_eq!(answer.all("access-control-allow-credentials"), ["true"]);
    let exposed = answer.all("access-control-expose-headers").join(", ").to_lowercase();
    assert!(
        exposed.contains("idempotent-replayed") && exposed.contains("retry-after"),
        "{exposed}"
    );
    assert!(answer.all("vary").iter().any(|vary| vary.to_lowercase().contains("origin")));
}

// R187
async fn an_allowed_origin_reads_refusals_and_replays(on: Kind) {
    let t = on.start(ALLOWED).await;
    let created = Reply::created().header("Access-Control-Expose-Headers", "X-Id");
    t.u.plan("/t", [created]);
    let first = t.send(&from(SHOP, B1)).await.fresh(201);
    let replay = t.send(&from(SHOP, B1)).await.replays(&first);
    is_readable(&replay, SHOP);
    let exposed = replay.all("access-control-expose-headers").join(", ");
    assert!(exposed.contains("X-Id"), "what the service exposes stays: {exposed}");
    let other = t.send(&from("http://localhost:5173", B2)).await;
    other.problem(422, "idempotency_key_reused");
    is_readable(&other, "http://localhost:5173");
    let missing = t.send(&from(SHOP, B1).key("second")).await;
    missing.problem(400, "idempotency_key_invalid");
    is_readable(&missing, SHOP);
    let look_up = "/.well-known/idempotency/operation?method=POST&path=/t";
    is_readable(&t.send(&Ask::bare("GET", look_up).key(K1).header("Origin", SHOP)).await, SHOP);
}

async fn another_origin_reads_nothing_of_ours(on: Kind) {
    for profile in [ALLOWED, D] {
        let t = on.start(profile).await;
        let first = t.send(&from("https://evil.test", B1)).await.fresh(201);
        let replay = t.send(&from("https://evil.test", B1)).await.replays(&first);
        let other = t.send(&from("https://evil.test", B2)).await;
        other.problem(422, "idempotency_key_reused");
        let prefixed = t.send(&from("https://shop.test.evil.test", B2)).await;
        for answer in [&replay, &other, &prefixed] {
            assert_eq!(allowed(answer), [""; 0], "{answer:?}");
        }
    }
}

async fn a_stored_permission_is_for_the_origin_that_had_it(on: Kind) {
    let t = on.start(D).await;
    let created = Reply::created()
        .header("Access-Control-Allow-Origin", SHOP)
        .header("Access-Control-Allow-Credentials", "true");
    t.u.plan("/t", [created]);
    let first = t.send(&from(SHOP, B1)).await.fresh(201);
    let same = t.send(&from(SHOP, B1)).await.replays(&first);
    assert_eq!(allowed(&same), [SHOP]);
    let other = t.send(&from("https://other.test", B1)).await.replays(&first);
    assert_eq!(allowed(&other), [""; 0]);
    assert!(other.all("access-control-allow-credentials").is_empty());
}

async fn what_the_service_answers_stays_the_services_to_allow(on: Kind) {
    let t = on.start(ALLOWED).await;
    let first = t.send(&from(SHOP, B1)).await.fresh(201);
    assert_eq!(allowed(&first), [""; 0]);
}

async fn any_origin_may_be_allowed_without_credentials(on: Kind) {
    let t = on.start(&[Set::Toml(r#"cors = ["*"]"#), Set::Required]).await;
    let refused = t.send(&Ask::post(B1).header("Origin", "https://any.test")).await;
    refused.problem(400, "idempotency_key_missing");
    assert_eq!(allowed(&refused), ["*"]);
    assert!(refused.all("access-control-allow-credentials").is_empty());
}
