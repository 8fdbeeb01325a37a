//! 8. Webhooks: `preset = "webhook"`, with the sender's own header as the key; and, in `verified`, `webhook = { … }`.

pub(crate) mod sender;
mod verified;

use serde_json::json;

use crate::client::Ask;
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::Kind;
use crate::{B1, K1, K2, on_gateway, until};

on_gateway! { redelivered, failed_delivery, in_flight }

const ROUTE: &str = r#"[[route]]
match = "POST /hooks"
preset = "webhook"
key_from = ["header:X-GitHub-Delivery", "header:I-Twilio-Idempotency-Token", "header:Idempotency-Key"]
"#;

// R142, R143, R145: GitHub, Twilio and GitLab send the same id with a redelivery. Seven days are longer than any of them tries.
async fn redelivered(on: Kind) {
    let t = on.start(&[Set::Toml(ROUTE)]).await;
    let headers = ["x-github-delivery", "i-twilio-idempotency-token", "idempotency-key"];
    for (number, header) in headers.into_iter().enumerate() {
        let delivery = |id| Ask::post(B1).to("/hooks").header(header, id);
        let first = t.send(&delivery(K1)).await;
        if number > 0 {
            // The id is the same operation in whichever header it stands.
            assert_eq!(first.all("idempotent-replayed"), ["true"], "{header}");
            continue;
        }
        let first = first.fresh(201);
        t.send(&delivery(K1)).await.replays(&first);
        t.send(&delivery(K2)).await.fresh(201);
    }
    assert_eq!(t.u.total(), 2);
    let document = t.send(&Ask::bare("GET", "/.well-known/idempotency")).await.fresh(200).json();
    assert_eq!(document["routes"][0]["ttl"], json!(7 * 24 * 60 * 60));
}

/// What failed is delivered again until it succeeds.
async fn failed_delivery(on: Kind) {
    let t = on.start(&[Set::Toml(ROUTE)]).await;
    t.u.plan("/hooks", [Reply::status(500), Reply::created()]);
    let delivery = Ask::post(B1).to("/hooks").header("x-github-delivery", K1);
    t.send(&delivery).await.fresh(500);
    let second = t.send(&delivery).await.fresh(201);
    t.send(&delivery).await.replays(&second);
    assert_eq!(t.u.total(), 2);
}

// R148
async fn in_flight(on: Kind) {
    let t = on.start(&[Set::Toml(ROUTE)]).await;
    let gate = Gate::new();
    t.u.plan("/hooks", [Reply::created().behind(&gate)]);
    let delivery = Ask::post(B1).to("/hooks").header("x-github-delivery", K1);
    let mut connection = t.connect().await;
    connection.0.write(&delivery.bytes()).await.unwrap();
    until("the execution", || t.u.total() == 1).await;
    let refused = t.send(&delivery).await;
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.all("retry-after").len(),
        1,
        "the sender is told to come again, not to give up"
    );
    gate.open();
    connection.answer(&delivery).await.unwrap().fresh(201);
    assert_eq!(t.u.total(), 1);
}
