//! A guarded service in one process: count its executions, read its answers.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use onlyonce::http::Who;
use onlyonce::scope::Principal;
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Once, Policy};
use tower::ServiceExt;

/// Who sends the API key.
pub(crate) fn caller(head: &Parts) -> Who {
    match head.headers.get("x-api-key").map(|key| key.as_bytes()) {
        None => Principal::anonymous().into(),
        Some(b"nobody") => Who::Nobody,
        Some(b"unclear") => Who::Unclear("Send an API key that is one.".to_owned()),
        Some(key) => Principal::of("api-key", key).into(),
    }
}

/// The tier's count: all of it, or about a tenth.
pub(crate) fn tiered(full: usize) -> usize {
    let is_full = std::env::var("ONLYONCE_TEST_TIER").is_ok_and(|tier| tier == "full");
    if is_full { full } else { full.div_ceil(10) }
}

type Answering = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A guarded service, and how often it was executed.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub(crate) app: Router,
    pub(crate) once: Once,
    executions: Arc<AtomicUsize>,
}

impl Guarded {
    /// `answer` gets the number of the execution, from 1.
    pub(crate) fn new<F, R>(policy: Policy, answer: F) -> Self
    where
        F: Fn(usize) -> R + Clone + Send + Sync + 'static,
        R: Future + Send + 'static,
        R::Output: IntoResponse,
    {
        Self::on(Once::new(MemoryStore::new()), policy, answer)
    }

    pub(crate) fn on<F, R>(once: Once, policy: Policy, answer: F) -> Self
    where
        F: Fn(usize) -> R + Clone + Send + Sync + 'static,
        R: Future + Send + 'static,
        R::Output: IntoResponse,
    {
        let executions = Arc::new(AtomicUsize::new(0));
        let count = executions.clone();
        let handler = move || -> Answering {
            let answering = answer(count.fetch_add(1, Ordering::SeqCst) + 1);
            Box::pin(async { answering.await.into_response() })
        };
        let app = Router::new().fallback(handler).layer(once.layer(caller, policy));
        Self { app, once, executions }
    }

    /// Answers 201 with a body that names the execution.
    pub(crate) fn counting(policy: Policy) -> Self {
        Self::new(policy, created)
    }

    pub(crate) fn executions(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.app.clone().oneshot(request).await.unwrap();
        Answer::read(response).await
    }

    pub(crate) async fn post(&self, key: &str, body: &'static str) -> Answer {
        self.send(post(key, body)).await
    }
}

pub(crate) async fn created(n: usize) -> Response<Body> {
    Response::builder()
        .status(StatusCode::CREATED)
        .header("content-type", "application/json")
        .header("location", format!("/t/{n}"))
        .header("etag", format!("\"{n}\""))
        .body(Body::from(format!("{{\"n\":{n}}}")))
        .unwrap()
}

pub(crate) fn post(key: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post("/t")
        .header("content-type", "application/json")
        .header("idempotency-key", key)
        .body(body.into())
        .unwrap()
}

/// An answer, read whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) async fn read<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (head, body) = response.into_parts();
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned();
        let body = collected.to_bytes();
        Self { status: head.status, headers: head.headers, body, trailers }
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The code of a problem document, after a look at everything that each must have.
    pub(crate) fn problem(&self) -> String {
        let document = self.json();
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.headers["cache-control"], "no-store");
        assert_eq!(self.headers["link"], "</.well-known/idempotency>; rel=\"describedby\"");
        assert_eq!(document["status"], self.status.as_u16());
        for member in ["type", "title", "detail", "retry"] {
            assert!(document[member].is_string(), "{member} in {document}");
        }
        document["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn retry(&self) -> String {
        self.json()["retry"].as_str().unwrap().to_owned()
    }

    /// That this is a replay of `first`.
    pub(crate) fn assert_replays(&self, first: &Self) {
        assert!(self.is_replay() && !first.is_replay(), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
        for name in ["location", "etag", "content-type"] {
            assert_eq!(self.headers.get(name), first.headers.get(name), "{name}");
        }
    }
}
