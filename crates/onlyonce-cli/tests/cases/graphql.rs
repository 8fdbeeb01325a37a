//! GraphQL: the key in an extension or a variable, and `operationName` in the scope.

use crate::client::Ask;
use crate::profile::Set;
use crate::subject::{Kind, Subject};
use crate::{K1, on_both, on_gateway};

on_both! {
    a_mutation_with_a_key_is_executed_once, a_batch_of_keyed_mutations_is_refused,
    a_key_is_found_whatever_the_media_type_says,
    mutations_that_share_a_key_are_told_apart_by_their_name,
}

on_gateway! {
    the_configuration_of_the_page_works_as_it_says,
}

/// A mutation with this name, key, amount and trace.
fn mutation(name: &str, key: &str, amount: u32, trace: u32) -> Ask {
    let query = format!("mutation {name}($amount: Int!) {{ {name}(amount: $amount) {{ id }} }}");
    let extensions = format!(r#"{{"idempotencyKey":"{key}","trace":{trace}}}"#);
    Ask::post(format!(
        r#"{{"operationName":"{name}","query":"{query}","variables":{{"amount":{amount}}},"extensions":{extensions}}}"#
    ))
}

async fn a_mutation_with_a_key_is_executed_once(on: Kind) {
    for source in [&["json:/extensions/idempotencyKey"], &["json:/variables/key"]] {
        let t = on.start(&[Set::KeyFrom(source)]).await;
        let body = format!(
            r#"{{"query":"mutation {{ pay }}","variables":{{"key":"{K1}"}},"extensions":{{"idempotencyKey":"{K1}"}}}}"#
        );
        let first = t.send(&Ask::post(body.as_str())).await.fresh(201);
        t.send(&Ask::post(body.as_str())).await.replays(&first);
        let other = body.replace("pay", "refund");
        t.send(&Ask::post(other)).await.problem(422, "idempotency_key_reused");
        t.send(&Ask::post(r#"{"query":"{ balance }"}"#)).await.fresh(201);
        assert_eq!(t.n(), 2);
    }
}

// threat G23
async fn a_batch_of_keyed_mutations_is_refused(on: Kind) {
    let t = on.start(&[Set::KeyFrom(&["json:/variables/key"])]).await;
    let keyed = format!(r#"{{"query":"mutation {{ pay }}","variables":{{"key":"{K1}"}}}}"#);
    let free = r#"{"query":"{ balance }"}"#;
    for batch in [format!("[{keyed}]"), format!("[{free},{keyed}]"), format!(" [{keyed},{keyed}]")]
    {
        for media in ["application/json", "text/plain"] {
            let ask = Ask::post(batch.as_str()).media(media);
            let told = t.send(&ask).await.problem(400, "idempotency_key_invalid");
            assert_eq!(told["retry"], "never");
        }
    }
    assert_eq!(t.n(), 0);
    t.send(&Ask::post(format!("[{free}]"))).await.fresh(201);
}

// threat G23
async fn a_key_is_found_whatever_the_media_type_says(on: Kind) {
    let t = on.start(&[Set::KeyFrom(&["json:/variables/key"])]).await;
    let names =
        ["text/json", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "json,json"];
    for (n, media) in names.into_iter().enumerate() {
        let body = format!(r#"{{"query":"mutation {{ pay }}","variables":{{"key":"{K1}-{n}"}}}}"#);
        let ask = Ask::post(body.as_str()).media(media);
        let first = t.send(&ask).await.fresh(201);
        t.send(&ask).await.replays(&first);
        let cut = ask.saying(body.trim_end_matches('}'));
        t.send(&cut).await.problem(400, "idempotency_key_invalid");
    }
    assert_eq!(t.n(), names.len());
}

async fn mutations_that_share_a_key_are_told_apart_by_their_name(on: Kind) {
    let scope = Set::Scope(&["principal", "host", "path", "json:/operationName"]);
    let t = on.start(&[Set::KeyFrom(&["json:/extensions/idempotencyKey"]), scope]).await;
    let made = t.send(&mutation("createOrder", K1, 7, 1)).await.fresh(201);
    let paid = t.send(&mutation("payOrder", K1, 7, 1)).await.fresh(201);
    t.send(&mutation("createOrder", K1, 7, 1)).await.replays(&made);
    t.send(&mutation("payOrder", K1, 7, 1)).await.replays(&paid);
    t.send(&mutation("payOrder", K1, 8, 1)).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 2);
}

async fn the_configuration_of_the_page_works_as_it_says(on: Kind) {
    let page = include_str!("../../../../docs/agents.md");
    let (_, rest) = page.rsplit_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    assert!(example.contains("json:/operationName"), "{example}");
    let t = on.start(&[Set::Toml(example)]).await;
    let send = async |t: &Subject, ask: Ask| t.send(&ask.to("/graphql")).await;
    let made = send(&t, mutation("createOrder", K1, 7, 1)).await.fresh(201);
    send(&t, mutation("payOrder", K1, 7, 1)).await.fresh(201);
    send(&t, mutation("createOrder", K1, 7, 2)).await.replays(&made);
    let changed = send(&t, mutation("createOrder", K1, 8, 2)).await;
    changed.problem(422, "idempotency_key_reused");
    assert_eq!(t.u.count("/graphql"), 2);
    let target = "/.well-known/idempotency/operation?method=POST&path=/graphql";
    let looked_up = t.send(&Ask::bare("GET", target).key(K1)).await;
    let problem = looked_up.problem(404, "idempotency_operation_not_found");
    assert!(problem["detail"].as_str().unwrap().contains("body"), "{problem}");
}
