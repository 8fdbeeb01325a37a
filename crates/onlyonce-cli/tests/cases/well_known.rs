//! What a client can ask about the gateway, and about its own operation, without sending it again.

use serde_json::{Value, json};

use crate::client::Ask;
use crate::profile::Set;
use crate::reply::{Gate, Reply};
use crate::subject::{Kind, Subject};
use crate::{B1, K1, K2, on_gateway, until};

on_gateway! { document, look_up, look_up_after_a_crash, look_up_of_keys_elsewhere }

// R116, R193
async fn document(on: Kind) {
    let t = on.start(&[Set::TtlMs(7_200_000), Set::Required, Set::WaitMs(500)]).await;
    let answer = t.send(&Ask::bare("GET", "/.well-known/idempotency")).await.fresh(200);
    assert_eq!(answer.all("content-type"), ["application/json"]);
    let document = answer.json();
    let route = &document["routes"][0];
    assert_eq!(route["ttl"], json!(7200));
    assert_eq!(route["key"]["required"], json!(true));
    assert_eq!(route["key"]["from"], json!(["header:idempotency-key"]));
    assert_eq!((&route["in_flight"], &route["recovery"]), (&json!("wait"), &json!("hold")));
    let problems = document["problems"].as_object().expect("a sentence for each code");
    assert!(problems["idempotency_key_reused"].is_string());
    assert_eq!(t.u.total(), 0, "the service was asked");
}

/// What one is told of `POST /t` with this key.
async fn told(t: &Subject, tenant: &str, key: &str) -> (u16, Value) {
    let target = "/.well-known/idempotency/operation?method=POST&path=/t";
    let answer = t.send(&Ask::bare("GET", target).key(key).tenant(tenant)).await;
    (answer.status, answer.json())
}

async fn look_up(on: Kind) {
    let t = on.start(&[]).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    assert_eq!(told(&t, "ann", K1).await.0, 404);
    let mut connection = t.connect().await;
    let ask = Ask::post(B1).key(K1).tenant("ann");
    connection.0.write(&ask.bytes()).await.unwrap();
    until("the execution", || t.n() == 1).await;
    assert_eq!(told(&t, "ann", K1).await, (200, json!({ "state": "running" })));
    gate.open();
    connection.answer(&ask).await.unwrap().fresh(201);
    let completed = (200, json!({ "state": "completed", "status": 201 }));
    assert_eq!(told(&t, "ann", K1).await, completed);
    // Neither another's key nor another key of one's own is told from one that was never used.
    assert_eq!(told(&t, "bob", K1).await.0, 404);
    assert_eq!(told(&t, "ann", K2).await.0, 404);
    assert_eq!(t.n(), 1);
}

async fn look_up_after_a_crash(on: Kind) {
    let mut t = on.start(&[]).await;
    let gate = Gate::new();
    t.u.plan("/t", [Reply::created().behind(&gate)]);
    let mut connection = t.connect().await;
    connection.0.write(&Ask::post(B1).key(K1).tenant("ann").bytes()).await.unwrap();
    until("the execution", || t.n() == 1).await;
    t.kill_and_restart().await;
    assert_eq!(told(&t, "ann", K1).await, (200, json!({ "state": "unknown" })));
    assert_eq!(t.n(), 1);
}

/// A look-up has no body: the header names the key, wherever the operation itself has it.
async fn look_up_of_keys_elsewhere(on: Kind) {
    let completed = (200, json!({ "state": "completed", "status": 201 }));
    let t = on.start(&[Set::KeyFrom(&["json:/ref"])]).await;
    t.send(&Ask::post(r#"{"ref":"po 1"}"#).tenant("ann")).await.fresh(201);
    assert_eq!(told(&t, "ann", "\"po 1\"").await, completed);
    assert_eq!(told(&t, "bob", "\"po 1\"").await.0, 404);
    let t = on.start(&[Set::KeyFrom(&["header:X-Ref"])]).await;
    t.send(&Ask::post(B1).header("X-Ref", K1).tenant("ann")).await.fresh(201);
    assert_eq!(told(&t, "ann", K1).await, completed);
    // The route's own place goes first.
    let target = "/.well-known/idempotency/operation?method=POST&path=/t";
    let both = Ask::bare("GET", target).tenant("ann").header("X-Ref", K1).key(K2);
    assert_eq!(t.send(&both).await.json(), completed.1);
    let none = t.send(&Ask::bare("GET", target).tenant("ann")).await;
    none.problem(400, "idempotency_key_missing");
    // Credentials are judged as the request's own would be.
    let unclear = t.send(&Ask::bare("GET", target).key(K1).header("Cookie", "sid=1")).await;
    unclear.problem(400, "principal_unclear");
}
