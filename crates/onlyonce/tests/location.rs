//! `Keep::Location` in the library: what a retry gets, and that no way of wrapping a service executes it again.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::OriginalUri;
use axum::routing::{get, post as on_post};
use http::{HeaderMap, Request, StatusCode};
use onlyonce::http::OnceLayer;
use onlyonce::policy::Keep;
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Limits, Once, Policy};
use support::{Answer, caller, post};
use tower::{Layer, Service, ServiceExt, service_fn};

const KEY: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";

/// How often the work was begun.
#[derive(Clone, Default)]
struct Works(Arc<AtomicUsize>);

impl Works {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// `/t` begins the work, and `/jobs/1` tells who asks and where.
    fn router(&self) -> Router {
        let works = self.clone();
        let begin = move || async move {
            works.0.fetch_add(1, Ordering::SeqCst);
            (StatusCode::ACCEPTED, [("location", "/jobs/1"), ("x-queue", "3")], "queued")
        };
        let tell = async |OriginalUri(uri): OriginalUri, headers: HeaderMap| {
            let who = headers.get("x-api-key").map_or("", |key| key.to_str().unwrap());
            format!("{} for {who}", uri.path())
        };
        Router::new().route("/t", on_post(begin)).route("/jobs/{id}", get(tell))
    }
}

fn layer(once: &Once) -> OnceLayer {
    let policy = Policy::default().with_keep(Keep::Location);
    once.layer(caller, policy).with_locations_fetched()
}

fn retry() -> Request<Body> {
    let mut request = post(KEY, "{}");
    request.headers_mut().insert("x-api-key", "ann".parse().unwrap());
    request
}

async fn send<S, A>(service: &S, request: Request<Body>) -> Answer
where
    S: Service<Request<Body>, Response = http::Response<A>, Error: std::fmt::Debug> + Clone,
    A: http_body::Body<Data = bytes::Bytes, Error: std::fmt::Debug>,
{
    Answer::read(service.clone().oneshot(request).await.unwrap()).await
}

#[track_caller]
fn assert_bare(answer: &Answer) {
    assert_eq!((answer.status, answer.is_replay()), (StatusCode::ACCEPTED, true));
    assert_eq!(
        (&answer.headers["location"], &answer.body[..]),
        (&"/jobs/1".parse().unwrap(), &b""[..])
    );
}

#[tokio::test]
async fn a_router_inside_the_layer_is_asked_for_the_location() {
    for limits in [Limits::default(), Limits::default().with_cache_bytes_max(0)] {
        let once = Once::builder(MemoryStore::new()).with_limits(limits).build();
        let works = Works::default();
        let app = layer(&once).layer(works.router());
        let first = send(&app, retry()).await;
        assert_eq!((first.status, &first.body[..]), (StatusCode::ACCEPTED, &b"queued"[..]));
        for _ in 0..2 {
            let again = send(&app, retry()).await;
            assert_eq!((again.status, again.is_replay()), (StatusCode::ACCEPTED, true));
            assert_eq!(again.headers["location"], "/jobs/1");
            assert!(!again.headers.contains_key("x-queue"));
            assert_eq!(&again.body[..], b"/jobs/1 for ann");
        }
        assert_eq!(works.count(), 1);
    }
}

// `Router::layer` of axum wraps each handler by itself: a GET would reach the handler of the operation.
#[tokio::test]
async fn a_handler_that_was_routed_to_is_not_taken_for_a_router() {
    let works = Works::default();
    let app = works.router().layer(layer(&Once::new(MemoryStore::new())));
    send(&app, retry()).await;
    assert_bare(&send(&app, retry()).await);
    assert_eq!(works.count(), 1);
}

#[tokio::test]
async fn below_a_router_that_strips_a_prefix_nothing_is_fetched() {
    let works = Works::default();
    let guarded = layer(&Once::new(MemoryStore::new())).layer(works.router());
    let app = Router::new().nest_service("/v1", guarded);
    let ask = || {
        let mut request = retry();
        *request.uri_mut() = "/v1/t".parse().unwrap();
        request
    };
    send(&app, ask()).await;
    assert_bare(&send(&app, ask()).await);
    assert_eq!(works.count(), 1);
}

#[tokio::test]
async fn a_layer_that_may_not_ask_gives_status_and_location() {
    let once = Once::new(MemoryStore::new());
    let works = Works::default();
    let app = once.layer(caller, Policy::default().with_keep(Keep::Location)).layer(works.router());
    send(&app, retry()).await;
    assert_bare(&send(&app, retry()).await);
    assert_eq!(works.count(), 1);
}

#[tokio::test]
async fn an_inner_service_that_fails_to_tell_is_asked_again_at_the_next_retry() {
    let works = Works::default();
    let router = works.router();
    let inner = service_fn(move |request: Request<onlyonce::http::Body>| {
        let router = router.clone();
        async move {
            match request.method().as_str() {
                "GET" => Err("no answer"),
                _ => Ok(router
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never: Infallible| match never {})),
            }
        }
    });
    let app = layer(&Once::new(MemoryStore::new())).layer(inner);
    send(&app, retry()).await;
    for _ in 0..2 {
        let failed = send(&app, retry()).await;
        assert_eq!(failed.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(failed.problem(), "idempotency_response_not_sent");
        assert_eq!(failed.retry(), "same-key");
    }
    assert_eq!(works.count(), 1);
}
