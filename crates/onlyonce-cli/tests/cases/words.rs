//! What a person reads when something was refused: what happened, where, and what to do.

use std::process::Command;

use crate::client::Ask;
use crate::profile::{D, Set};
use crate::reply::Reply;
use crate::subject::Kind;
use crate::{B1, K1, on_both, on_gateway};

on_both! { a_held_outcome_says_who_resolves_it, a_missing_key_says_where_it_is_expected }

on_gateway! { an_unclear_caller_and_an_unreachable_service_say_so, the_help_says_what_each_command_does }

async fn a_held_outcome_says_who_resolves_it(on: Kind) {
    let t = on.start(D).await;
    t.u.plan("/t", [Reply::status(502)]);
    t.send(&Ask::post(B1).key(K1)).await.fresh(502);
    let held = t.send(&Ask::post(B1).key(K1)).await;
    let problem = held.problem(409, "idempotency_outcome_unknown");
    assert_eq!(held.retry_after_s(), 60);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("an operator must resolve it"), "{detail}");
    assert!(detail.contains("Do not use a new key"), "{detail}");
}

async fn a_missing_key_says_where_it_is_expected(on: Kind) {
    for (sources, place) in [
        (&["header:Idempotency-Key"][..], "the header Idempotency-Key"),
        (&["header:X-Ref", "query:ref"], "the header X-Ref or the query parameter ref"),
        (&["json:/order/id"], "the member /order/id of the JSON body"),
    ] {
        let t = on.start(&[Set::KeyFrom(sources), Set::Required]).await;
        let problem = t.send(&Ask::post(B1)).await.problem(400, "idempotency_key_missing");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(place), "{detail}");
    }
}

async fn an_unclear_caller_and_an_unreachable_service_say_so(on: Kind) {
    let t = on.start(&[Set::Toml("upstream = \"http://127.0.0.1:1\"")]).await;
    let problem = t.send(&Ask::post(B1).key(K1).header("Cookie", "session=1")).await;
    assert_eq!(problem.problem(400, "principal_unclear")["title"], "Cannot identify the caller");
    let problem = t.send(&Ask::post(B1).key(K1)).await.problem(503, "upstream_unreachable");
    assert_eq!(problem["title"], "Upstream service unreachable");
}

async fn the_help_says_what_each_command_does(_: Kind) {
    let help = Command::new(env!("CARGO_BIN_EXE_onlyonce")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Run the gateway in front of a service"), "{help}");
}
