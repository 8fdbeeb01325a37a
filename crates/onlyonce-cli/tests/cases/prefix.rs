//! An upstream with a path prefix.

use crate::client::Ask;
use crate::profile::{D, Profile, Set};
use crate::reply::Reply;
use crate::subject::{Kind, Subject};
use crate::upstream::Upstream;
use crate::{B1, K1, K2, on_gateway, within};

on_gateway! {
    a_prefix_goes_before_the_path_that_the_client_sent,
    a_prefix_goes_before_the_path_over_http2_too,
    a_question_is_asked_under_the_prefix,
}

async fn under(scheme: &str, prefix: &str, profile: Profile<'_>) -> Subject {
    let u = Upstream::start().await;
    let url = format!("{scheme}://{}{prefix}", u.address);
    Kind::Gateway.start_at(&url, u, profile).await
}

fn targets(t: &Subject) -> Vec<String> {
    t.u.seen().into_iter().map(|seen| seen.target).collect()
}

async fn a_prefix_goes_before_the_path_that_the_client_sent(_: Kind) {
    for prefix in ["/api", "/api/", "/api//"] {
        let t = under("http", prefix, D).await;
        let ask = Ask::post(B1).key(K1).to("/t?x=1");
        let first = t.send(&ask).await.fresh(201);
        t.send(&ask).await.replays(&first);
        t.send(&Ask::post(B1).key(K2).to("/api/t")).await.fresh(201);
        for target in ["/", "/?q", "//twice", "/a%2Fb/"] {
            t.send(&Ask::bare("GET", target)).await.fresh(200);
        }
        t.send(&Ask::bare("OPTIONS", "*")).await.fresh(200);
        let seen = targets(&t);
        assert_eq!(
            seen,
            ["/api/t?x=1", "/api/api/t", "/api/", "/api/?q", "/api//twice", "/api/a%2Fb/", "*"]
        );
    }
}

async fn a_prefix_goes_before_the_path_over_http2_too(_: Kind) {
    let t = under("h2c", "/v1/api", D).await;
    let ask = Ask::post(B1).key(K1).to("/t?x=1");
    let first = t.send(&ask).await.fresh(201);
    t.send_http2(&ask).await.replays(&first);
    assert_eq!(targets(&t), ["/v1/api/t?x=1"]);
}

async fn a_question_is_asked_under_the_prefix(_: Kind) {
    let t = under("http", "/api", &[Set::Reconcile]).await;
    t.u.plan("/api/t", [Reply::reset()]);
    t.u.plan("/api/charges", [Reply::status(200).body("[{\"id\":\"ch_1\"}]")]);
    t.post(K1, B1).await.problem(502, "idempotency_outcome_unknown");
    within("the upstream to be asked", async {
        while t.post(K1, B1).await.status == 409 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(targets(&t).last(), Some(&format!("/api/charges?key={K1}")));
}
