//! How callers are told apart: by headers of trusted peers, and what shows that it is set wrong.

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::subject::Kind;
use crate::{B1, B2, K1, K2, on_gateway};

on_gateway! {
    r26_a_header_names_the_caller_only_if_a_trusted_peer_sends_it,
    r26_a_key_that_comes_again_from_another_caller_is_counted,
    r28_environments_are_apart_where_the_scope_has_them,
    r30_routes_with_their_own_rules_share_one_store,
    r31_a_caller_learns_nothing_of_the_key_of_another,
}

/// The client of the test is at 127.0.0.1.
const PEERS: Set = Set::Toml(
    r#"principal = ["header:X-User", "header:X-Api-Key"]
trusted_peers = ["10.0.0.0/8", "::1"]
[[route]]
match = "POST /near"
trusted_peers = ["10.0.0.0/8", "127.0.0.0/8"]
"#,
);

fn look_up(path: &str) -> Ask {
    let target = format!("/.well-known/idempotency/operation?method=POST&path={path}");
    Ask::bare("GET", &target).key(K1)
}

// R26
async fn r26_a_header_names_the_caller_only_if_a_trusted_peer_sends_it(on: Kind) {
    let t = on.start(&[PEERS]).await;
    let from = |user: &str, path: &str| Ask::post(B1).key(K1).to(path).header("X-User", user);
    let refused = t.send(&from("ann", "/t")).await.problem(401, "principal_invalid");
    assert!(refused["detail"].as_str().unwrap().contains("x-user"), "{refused}");
    t.send(&look_up("/t").header("X-User", "ann")).await.problem(401, "principal_invalid");
    // Nor does it speak beside a credential: the service might believe it.
    let both = from("ann", "/t").header("X-Api-Key", "k");
    t.send(&both).await.problem(401, "principal_invalid");
    assert_eq!(t.u.total(), 0);
    // Empty is absent, and a credential that the service verifies is taken from everybody.
    let first = t.send(&from("", "/t").header("X-Api-Key", "k")).await.fresh(201);
    t.send(&Ask::post(B1).key(K1).header("X-Api-Key", "k")).await.replays(&first);
    // Without a key there is nobody to be told apart.
    t.send(&Ask::post(B1).header("X-User", "ann")).await.fresh(201);
    let first = t.send(&from("ann", "/near")).await.fresh(201);
    t.send(&from("bob", "/near")).await.fresh(201);
    t.send(&from("ann", "/near")).await.replays(&first);
    t.send(&look_up("/near").header("X-User", "ann")).await.fresh(200);
    assert_eq!(t.u.count("/near"), 2);
    let told = "the header x-user of the peers 10.0.0.0/8, ::1/128, else by the header x-api-key";
    assert!(t.first_line().contains(told), "{}", t.first_line());
    let log = t.end_and_read_logs().await;
    assert!(!log.contains("whoever connects can send"), "{log}");
}

// R26
async fn r26_a_key_that_comes_again_from_another_caller_is_counted(on: Kind) {
    const CHANGED: &str = "onlyonce_changed_principal_total{route=\"default\"}";
    let t = on.start(D).await;
    let ask = |who: &str| Ask::post(B1).key(K1).tenant(who);
    t.send(&ask("ann")).await.fresh(201);
    t.send(&ask("ann")).await;
    t.send(&ask("ann").saying(B2)).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.metric(CHANGED).await, 0, "the same caller");
    t.send(&ask("bob").saying(B2)).await.fresh(201);
    t.send(&ask("bob").key(K2).replaced("Idempotency-Key", K2)).await;
    t.send(&ask("eve").replaced("Host", "other.test")).await.fresh(201);
    t.send(&ask("eve").to("/elsewhere")).await.fresh(201);
    assert_eq!(t.metric(CHANGED).await, 0, "another request, key, host or path");
    t.send(&ask("ann, refreshed")).await.fresh(201);
    t.send(&ask("ann, refreshed")).await;
    assert_eq!(t.metric(CHANGED).await, 1);
    t.send(&ask("ann, refreshed again")).await.fresh(201);
    assert_eq!(t.metric(CHANGED).await, 2);
    let log = t.end_and_read_logs().await;
    assert_eq!(log.matches("came again from another caller").count(), 1, "{log}");
    assert!(!log.contains(K1) && !log.contains("refreshed"), "{log}");
}

// R28
async fn r28_environments_are_apart_where_the_scope_has_them(on: Kind) {
    let scope = ["principal", "host", "method", "path", "header:X-Environment", "header:X-Region"];
    let t = on.start(&[Set::Toml(format!("scope = {scope:?}").leak())]).await;
    let ask = |environment: &str, region: &str| {
        let ask = Ask::post(B1).key(K1).tenant("ann");
        ask.header("X-Environment", environment).header("X-Region", region)
    };
    let live = t.send(&ask("live", "eu")).await.fresh(201);
    t.send(&ask("test", "eu")).await.fresh(201);
    t.send(&ask("live", "us")).await.fresh(201);
    t.send(&ask("live", "eu")).await.replays(&live);
    assert_eq!(t.n(), 3);
}

// R29, R30: each route takes its concrete paths for operations of their own.
async fn r30_routes_with_their_own_rules_share_one_store(on: Kind) {
    let routes = r#"
[[route]]
match = "POST /users/{id}/charges"
preset = "payments"
[[route]]
match = "POST /signup"
preset = "signup"
"#;
    let t = on.start(&[Set::Toml(routes)]).await;
    for path in ["/users/1/charges", "/users/2/charges", "/signup", "/t"] {
        let ask = Ask::post(B1).key(K1).tenant("ann").to(path);
        let first = t.send(&ask).await.fresh(201);
        t.send(&ask).await.replays(&first);
        assert_eq!(t.u.count(path), 1);
    }
    assert_eq!(t.records().await, 4);
}

// R31; threat G8
async fn r31_a_caller_learns_nothing_of_the_key_of_another(on: Kind) {
    let t = on.start(D).await;
    let ask = |who: &str, body: &str| Ask::post(body).key(K1).tenant(who);
    t.send(&ask("ann", B1)).await.fresh(201);
    // Neither 409 nor 422 nor a replay, and nothing to look up.
    t.send(&look_up("/t").tenant("bob")).await.problem(404, "idempotency_operation_not_found");
    let bob = t.send(&ask("bob", B2)).await.fresh(201);
    t.send(&ask("bob", B2)).await.replays(&bob);
    t.send(&ask("ann", B2)).await.problem(422, "idempotency_key_reused");
    assert_eq!(t.n(), 2);
}
