//! The layer and the extractor for axum.

mod answers;
mod conflicts;
mod duplicates;
mod endings;
mod misuse;
mod nested;
mod set_up;
mod unanswered;
mod without_tx;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::routing::post;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use onlyonce::Policy;
use onlyonce::http::Who;
use onlyonce::scope::Principal;
use onlyonce::transaction::{TransactionLayer, Transactions, Tx};
use sqlx::PgPool;
use tower::ServiceExt;

use crate::lab::{CHARGE, Lab};

/// A shop with one handler on `/charges`, in a database of its own.
struct Shop {
    lab: Lab,
    pool: PgPool,
    app: Router,
    runs: Arc<AtomicUsize>,
}

impl Shop {
    async fn open<H, T>(policy: Policy, handler: H) -> Self
    where
        H: Handler<T, Arc<AtomicUsize>>,
        T: 'static,
    {
        Self::open_in(Lab::start().await, policy, handler, |layer| layer).await
    }

    async fn open_in<H, T>(
        lab: Lab,
        policy: Policy,
        handler: H,
        change: impl FnOnce(TransactionLayer) -> TransactionLayer,
    ) -> Self
    where
        H: Handler<T, Arc<AtomicUsize>>,
        T: 'static,
    {
        let (pool, runs) = (lab.pool(4).await, Arc::new(AtomicUsize::new(0)));
        let layer = change(Transactions::new().layer(pool.clone(), caller, policy));
        let app =
            Router::new().route("/charges", post(handler)).layer(layer).with_state(runs.clone());
        Self { lab, pool, app, runs }
    }

    async fn post(&self, key: &str, body: &str) -> Answer {
        send(self.app.clone(), charge(key, body)).await
    }

    /// How often the handler ran.
    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn operations(&self) -> String {
        self.lab.sql("SELECT count(*) FROM onlyonce.transactional")
    }

    /// No transaction is left open, and none is idle in one.
    fn is_quiet(&self) -> bool {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        (0..1_000).any(|_| self.lab.sql(open) == "0")
    }
}

pub(crate) fn caller(head: &Parts) -> Who {
    match head.headers.get("x-api-key").map(|key| key.as_bytes()) {
        None => Who::Nobody,
        Some(b"unclear") => Who::Unclear("Send an API key that is one.".to_owned()),
        Some(key) => Principal::of("api-key", key).into(),
    }
}

pub(crate) fn charge(key: &str, body: &str) -> Request<Body> {
    let request = Request::post("/charges")
        .header("host", "shop.example")
        .header("x-api-key", "ann")
        .header("content-type", "application/json")
        .header("idempotency-key", key);
    request.body(Body::from(body.to_owned())).unwrap()
}

pub(crate) async fn send(app: Router, request: Request<Body>) -> Answer {
    let (head, body) = app.oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, body }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        document["code"].as_str().unwrap().to_owned()
    }
}

/// Charges, counting the run.
async fn insert(tx: &mut Tx, runs: &AtomicUsize) -> usize {
    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
    sqlx::query(CHARGE).execute(&mut **tx).await.unwrap();
    run
}

pub(crate) const BODY: &str = r#"{"amount":7998}"#;
