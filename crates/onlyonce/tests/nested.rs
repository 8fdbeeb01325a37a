//! Routers that strip the beginning of a path: the path that the client sent is what counts.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::middleware::{Next, from_fn};
use axum::routing::{any, post as on_post};
use http::{Request, StatusCode};
use onlyonce::http::{ClientUri, OnceLayer};
use onlyonce::scope::ScopePart;
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Once, Policy};
use support::{Answer, caller, created, post};
use tower::ServiceExt;

/// A counting service on its own store.
#[derive(Clone)]
struct Shop {
    once: Once,
    executions: Arc<AtomicUsize>,
}

impl Shop {
    fn new() -> Self {
        Self { once: Once::new(MemoryStore::new()), executions: Arc::default() }
    }

    fn layer(&self) -> OnceLayer {
        self.once.layer(caller, Policy::default())
    }

    /// `/charges` and everything else, without a layer.
    fn bare(&self) -> Router {
        let count = self.executions.clone();
        let charge = move || {
            let n = count.fetch_add(1, Ordering::SeqCst) + 1;
            async move { created(n).await }
        };
        Router::new().route("/charges", on_post(charge.clone())).fallback(charge)
    }

    fn guarded(&self) -> Router {
        self.bare().layer(self.layer())
    }

    fn executions(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }

    /// Each path is an operation of its own, and each is replayed.
    async fn assert_apart(&self, app: &Router, paths: &[&str]) {
        for (n, path) in paths.iter().enumerate() {
            let first = send(app, path).await;
            assert_eq!((first.status, first.is_replay()), (StatusCode::CREATED, false), "{path}");
            assert_eq!(self.executions(), n + 1, "{path}");
            send(app, path).await.assert_replays(&first);
        }
        assert_eq!(self.executions(), paths.len());
    }
}

async fn send(app: &Router, path: &str) -> Answer {
    Answer::read(app.clone().oneshot(charge(path)).await.unwrap()).await
}

fn charge(path: &str) -> Request<Body> {
    let mut request = post("order-17", r#"{"amount":1}"#);
    *request.uri_mut() = path.parse().unwrap();
    request
}

const ACCOUNTS: [&str; 2] = ["/accounts/1/charges", "/accounts/2/charges"];

// R29, R34; threat K2
#[tokio::test]
async fn a_nested_router_keeps_two_accounts_apart() {
    let shop = Shop::new();
    let app = Router::new().nest("/accounts/{account}", shop.guarded());
    shop.assert_apart(&app, &ACCOUNTS).await;
}

// threat K2
#[tokio::test]
async fn a_nested_service_keeps_two_accounts_apart() {
    let shop = Shop::new();
    let app = Router::new().nest_service("/accounts/{account}", shop.guarded());
    shop.assert_apart(&app, &ACCOUNTS).await;
    let shop = Shop::new();
    let service = tower::Layer::layer(&shop.layer(), shop.bare());
    let app = Router::new().nest_service("/accounts/{account}", service);
    shop.assert_apart(&app, &ACCOUNTS).await;
}

// threat K2
#[tokio::test]
async fn a_router_that_is_nested_twice_keeps_every_prefix_apart() {
    let shop = Shop::new();
    let users = Router::new().nest("/users/{user}", shop.guarded());
    let app = Router::new().nest("/accounts/{account}", users);
    let paths = [
        "/accounts/1/users/1/charges",
        "/accounts/1/users/2/charges",
        "/accounts/2/users/1/charges",
        "/accounts/2/users/2/charges",
    ];
    shop.assert_apart(&app, &paths).await;
}

// threat K2
#[tokio::test]
async fn the_fallback_of_a_nested_router_keeps_two_accounts_apart() {
    let shop = Shop::new();
    let app = Router::new().nest("/accounts/{account}", shop.guarded());
    shop.assert_apart(&app, &["/accounts/1/elsewhere", "/accounts/2/elsewhere"]).await;
}

// threat K2
#[tokio::test]
async fn one_inner_router_under_two_versions_is_two_operations() {
    let shop = Shop::new();
    let inner = shop.guarded();
    let app = Router::new().nest("/v1", inner.clone()).nest("/v2", inner);
    shop.assert_apart(&app, &["/v1/charges", "/v2/charges"]).await;
}

// threat K2
#[tokio::test]
async fn it_does_not_matter_whether_the_layer_is_inside_or_outside_of_the_nesting() {
    let shop = Shop::new();
    let outside = Router::new().nest("/accounts/{account}", shop.bare()).layer(shop.layer());
    shop.assert_apart(&outside, &ACCOUNTS).await;
    let inside = Router::new().nest("/accounts/{account}", shop.guarded());
    for path in ACCOUNTS {
        assert!(send(&inside, path).await.is_replay(), "the same operation: {path}");
    }
    let around = any(|| created(0)).layer(shop.layer());
    let on_the_route = Router::new().route("/charges", around);
    let on_the_route = Router::new().nest("/accounts/{account}", on_the_route);
    assert!(send(&on_the_route, ACCOUNTS[0]).await.is_replay());
}

/// Without the path in the scope the fingerprint alone tells the accounts apart.
// R34; threat K2
#[tokio::test]
async fn the_fingerprint_of_a_nested_request_has_the_whole_path() {
    let shop = Shop::new();
    let policy = Policy::default().with_scope([ScopePart::Principal, ScopePart::Host]);
    let inner = shop.bare().layer(shop.once.layer(caller, policy));
    let app = Router::new().nest("/accounts/{account}", inner);
    let first = send(&app, ACCOUNTS[0]).await;
    send(&app, ACCOUNTS[0]).await.assert_replays(&first);
    assert_eq!(send(&app, ACCOUNTS[1]).await.problem(), "idempotency_key_reused");
    assert_eq!(send(&app, "/accounts/1/charges?a=1").await.problem(), "idempotency_key_reused");
    assert_eq!(shop.executions(), 1);
}

/// A path may say more than the client's own: a tenant that came in a header, say.
// threat K2
#[tokio::test]
async fn a_path_that_was_rewritten_on_the_way_counts_as_well() {
    async fn by_tenant(mut request: Request<Body>, next: Next) -> axum::response::Response {
        let tenant = request.headers()["x-tenant"].to_str().unwrap().to_owned();
        *request.uri_mut() = format!("/{tenant}{}", request.uri().path()).parse().unwrap();
        next.run(request).await
    }
    let shop = Shop::new();
    let app = Router::new().fallback_service(shop.guarded().layer(from_fn(by_tenant)));
    for (n, tenant) in ["a", "b"].into_iter().enumerate() {
        for _ in 0..2 {
            let mut request = charge("/charges");
            request.headers_mut().insert("x-tenant", tenant.parse().unwrap());
            assert_eq!(app.clone().oneshot(request).await.unwrap().status(), StatusCode::CREATED);
            assert_eq!(shop.executions(), n + 1, "{tenant}");
        }
    }
}

/// For routers that we do not know.
// threat K2
#[tokio::test]
async fn whoever_strips_a_path_by_hand_can_say_what_the_client_sent() {
    async fn strip(mut request: Request<Body>, next: Next) -> axum::response::Response {
        let sent = request.uri().clone();
        *request.uri_mut() = "/charges".parse().unwrap();
        request.extensions_mut().insert(ClientUri(sent));
        next.run(request).await
    }
    let shop = Shop::new();
    let service = tower::Layer::layer(&shop.layer(), shop.bare());
    let app = Router::new().fallback_service(service).layer(from_fn(strip));
    shop.assert_apart(&app, &ACCOUNTS).await;
}

// threat K2
#[tokio::test]
async fn a_look_up_finds_the_operation_of_a_nested_route() {
    let shop = Shop::new();
    let app = Router::new().nest("/accounts/{account}", shop.guarded());
    send(&app, ACCOUNTS[0]).await;
    for (path, status) in [(ACCOUNTS[0], StatusCode::OK), (ACCOUNTS[1], StatusCode::NOT_FOUND)] {
        let (head, _) = charge(path).into_parts();
        assert_eq!(shop.layer().look_up(&head).await.status(), status, "{path}");
    }
}

// The inner layer meets the claim of the outer one, which is its own.
#[tokio::test]
async fn layers_at_two_levels_execute_once() {
    let shop = Shop::new();
    let app = Router::new().nest("/v1", shop.guarded()).layer(shop.layer());
    shop.assert_apart(&app, &["/v1/charges", "/v1/other"]).await;
}

// Another engine has another store, which must know of the operation too.
#[tokio::test]
async fn layers_of_two_engines_both_claim() {
    let (outer, inner) = (Shop::new(), Shop::new());
    let app = Router::new().nest("/v1", inner.guarded()).layer(outer.layer());
    inner.assert_apart(&app, &["/v1/charges"]).await;
    let behind = Router::new().nest("/v1", inner.guarded());
    assert!(send(&behind, "/v1/charges").await.is_replay(), "the inner store has it");
    assert_eq!(inner.executions(), 1);
}
