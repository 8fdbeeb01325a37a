//! Unknown outcomes that are asked about, and rules that are only watched.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use onlyonce::policy::{Absent, Recovery};
use onlyonce::record::{Kept, Response};
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Finding, Once, Policy, Question, Reconciler};
use support::{Answer, caller, post};
use tower::ServiceExt;

const KEY: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
const BODY: &str = r#"{"amount":7998}"#;

/// Finds the same thing whenever it is asked, and counts how often that is.
#[derive(Clone)]
struct Finds(Finding, Arc<AtomicUsize>);

impl Reconciler for Finds {
    fn ask<'a>(
        &'a self,
        question: Question<'a>,
    ) -> Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
        assert_eq!(question.key, KEY);
        assert!(question.headers.is_some_and(|headers| headers.contains_key("idempotency-key")));
        self.1.fetch_add(1, Ordering::SeqCst);
        let finding = self.0.clone();
        Box::pin(async move { finding })
    }
}

fn created() -> Finding {
    let body = Kept::Bytes { body: Bytes::from_static(b"found"), trailers: None };
    Finding::Found(Arc::new(Response {
        status: StatusCode::CREATED,
        headers: HeaderMap::new(),
        body,
    }))
}

fn reconciling(absent: Absent) -> Policy {
    let policy = Policy::default()
        .with_lease(Duration::from_millis(20))
        .with_upstream_timeout(Duration::from_millis(20));
    policy.with_recovery(Recovery::Reconcile { absent, quiet: Duration::from_millis(100) })
}

struct Reconciled {
    app: axum::Router,
    executions: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

/// A handler that never answers, and a reconciler that finds `finding`.
fn reconciled(policy: Policy, finding: Finding) -> Reconciled {
    let (executions, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let once = Once::new(MemoryStore::new());
    let layer = once.layer(caller, policy).with_reconciler(Finds(finding, asked.clone()));
    let count = executions.clone();
    let handler = move || {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<StatusCode>()
    };
    Reconciled { app: axum::Router::new().fallback(handler).layer(layer), executions, asked }
}

impl Reconciled {
    async fn send(&self) -> Answer {
        Answer::read(self.app.clone().oneshot(post(KEY, BODY)).await.unwrap()).await
    }

    fn executions(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }
}

// R102; FAIL-17
#[tokio::test]
async fn what_is_found_becomes_the_answer_of_every_retry() {
    let service = reconciled(reconciling(Absent::Hold), created());
    assert_eq!(service.send().await.status, StatusCode::GATEWAY_TIMEOUT);
    for _ in 0..3 {
        let retry = service.send().await;
        assert!(retry.is_replay());
        assert_eq!((retry.status, retry.body), (StatusCode::CREATED, Bytes::from_static(b"found")));
    }
    assert_eq!((service.executions(), service.asked.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn what_is_not_found_is_held_however_often_it_is_asked() {
    for finding in [Finding::Absent, Finding::Unclear] {
        let service = reconciled(reconciling(Absent::Hold), finding);
        service.send().await;
        for _ in 0..4 {
            assert_eq!(service.send().await.problem(), "idempotency_outcome_unknown");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(service.executions(), 1);
    }
}

#[tokio::test]
async fn what_nobody_heard_of_twice_after_the_quiet_time_runs_again_where_the_route_says_so() {
    let service = reconciled(reconciling(Absent::Release), Finding::Absent);
    service.send().await;
    assert_eq!(service.send().await.problem(), "idempotency_outcome_unknown", "too early");
    assert_eq!(service.executions(), 1);
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(service.send().await.problem(), "idempotency_outcome_unknown", "once is not enough");
    assert_eq!(service.executions(), 1);
    assert_eq!(service.send().await.status, StatusCode::GATEWAY_TIMEOUT, "it ran again");
    assert_eq!(service.executions(), 2);
}
