//! Keys that tell their own age, where the clocks of a node and of its store differ.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use onlyonce::clock::{Clock, StoreTime};
use onlyonce::http::OnceLayer;
use onlyonce::policy::{OldKeys, Tokens};
use onlyonce::scope::Secret;
use onlyonce::store::conformance::ManualClock;
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Once, Policy};
use support::{caller, created};
use tower::ServiceExt;

const TTL: Duration = Duration::from_secs(3_600);

/// A node and its store, each with a clock of its own.
struct Node {
    node: ManualClock,
    store: ManualClock,
    layer: OnceLayer,
}

impl Node {
    /// The wall clock of the node is `ahead_ms` of that of the store.
    fn new(policy: Policy, ahead_ms: i64) -> Self {
        let (node, store) = (ManualClock::new(), ManualClock::new());
        node.set_wall(store.wall().plus_ms(ahead_ms));
        let once = Once::builder(MemoryStore::with_clock(store.clone()));
        let once = once.with_clock(node.clone()).with_secret(Secret::new("a secret of this test"));
        let layer = once.build().layer(caller, policy.with_ttl(TTL));
        Self { node, store, layer }
    }

    fn advance(&self, duration: Duration) {
        self.node.advance(duration);
        self.store.advance(duration);
    }

    async fn send(&self, request: Request<Body>) -> StatusCode {
        let app = Router::new().fallback(|| created(1)).layer(self.layer.clone());
        app.oneshot(request).await.unwrap().status()
    }

    async fn token(&self) -> String {
        let (head, ()) = Request::post("/t").body(()).unwrap().into_parts();
        let issued = self.layer.issue_token(&head).into_body().collect().await.unwrap().to_bytes();
        let issued: serde_json::Value = serde_json::from_slice(&issued).unwrap();
        issued["token"].as_str().unwrap().to_owned()
    }
}

/// A UUIDv7 that was made at this moment.
fn uuid(made_at: StoreTime) -> String {
    let time = format!("{:012x}", made_at.as_ms());
    format!("{}-{}-7cc3-98c4-dc0c0c07398f", &time[..8], &time[8..])
}

const SKEWS_MS: [i64; 5] = [-7_200_000, -30_000, 0, 30_000, 7_200_000];

// A token that outlives its answer would run the operation a second time.
#[tokio::test]
async fn a_token_expires_before_its_answer_whatever_the_clocks_of_the_nodes_say() {
    for issuing_ms in SKEWS_MS {
        for judging_ms in SKEWS_MS {
            let node = Node::new(Policy::default().with_tokens(Tokens::Required), issuing_ms);
            // The node hears the time of its store.
            node.send(support::post(&node.token().await, "{}")).await;
            let token = node.token().await;
            let first = node.send(support::post(&token, "{}")).await;
            let is_near = issuing_ms.abs() <= 30_000;
            assert!(!is_near || first == StatusCode::CREATED, "{issuing_ms}: {first}");
            node.advance(TTL + Duration::from_millis(1));
            node.node.set_wall(node.store.wall().plus_ms(judging_ms));
            let late = node.send(support::post(&token, "{}")).await;
            assert_eq!(late, StatusCode::BAD_REQUEST, "{issuing_ms} {judging_ms}");
        }
    }
}

#[tokio::test]
async fn a_token_can_be_used_for_most_of_the_ttl() {
    let node = Node::new(Policy::default().with_tokens(Tokens::Required), 0);
    let token = node.token().await;
    node.advance(TTL - Duration::from_secs(90));
    assert_eq!(node.send(support::post(&token, "{}")).await, StatusCode::CREATED);
}

#[tokio::test]
async fn an_old_key_is_refused_before_its_answer_expires_whatever_the_clock_of_the_node_says() {
    for ahead_ms in SKEWS_MS {
        let node = Node::new(Policy::default().with_old_keys(OldKeys::Refuse), ahead_ms);
        // A client whose clock is half a minute ahead of the store's.
        let key = uuid(node.store.wall().plus_ms(30_000));
        let first = node.send(support::post(&key, "{}")).await;
        node.advance(TTL + Duration::from_millis(1));
        let late = node.send(support::post(&key, "{}")).await;
        assert_eq!(late, StatusCode::PRECONDITION_FAILED, "{ahead_ms}");
        // A clock that is off by more than the ttl makes every key too old.
        let is_far_ahead = ahead_ms > 3_600_000;
        assert_eq!(first == StatusCode::CREATED, !is_far_ahead, "{ahead_ms}");
    }
}
