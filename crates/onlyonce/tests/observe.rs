//! `mode = "observe"`: every request runs, nothing is refused, and what would have happened is counted.
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use onlyonce::policy::{Absent, KeyNeed, Mode, Recovery};
use onlyonce::store::memory::MemoryStore;
use onlyonce::{Counts, Finding, Limits, Once, Policy, Question, Reconciler};
use support::{Answer, caller, post};
use tokio::sync::watch;
use tower::ServiceExt;

const KEY: &str = "8e03978e-40d5-43e8-bc93-6894a57f9324";
const BODY: &str = r#"{"amount":7998}"#;

/// An observed service that answers with the body that it got.
#[derive(Clone)]
struct Observed {
    once: Once,
    app: Router,
    executions: Arc<AtomicUsize>,
}

impl Observed {
    fn new(policy: Policy) -> Self {
        Self::bounded(policy, Limits::default())
    }

    fn bounded(policy: Policy, limits: Limits) -> Self {
        let once = Once::builder(MemoryStore::new()).with_limits(limits).build();
        let executions = Arc::new(AtomicUsize::new(0));
        let count = executions.clone();
        let echo = move |request: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async move {
                match axum::body::to_bytes(request.into_body(), 1 << 20).await {
                    Ok(body) => (StatusCode::CREATED, body),
                    Err(_) => (StatusCode::BAD_REQUEST, Bytes::new()),
                }
            }
        };
        let layer = once.layer(caller, policy.with_mode(Mode::Observe));
        Self { app: Router::new().fallback(echo).layer(layer), once, executions }
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.app.clone().oneshot(request).await.unwrap()).await
    }

    fn executions(&self) -> usize {
        self.executions.load(Ordering::SeqCst)
    }

    /// Waits until exactly this was counted, and nothing is under way.
    async fn counts(&self, expected: Counts) {
        for _ in 0..4_000 {
            if self.once.counts() == expected && self.once.executing() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(self.once.counts(), expected);
    }
}

/// Whoever is asked has been asked.
struct Asked(Arc<AtomicUsize>);

impl Reconciler for Asked {
    fn ask<'a>(&'a self, _: Question<'a>) -> Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Finding::Unclear })
    }

    fn asks_by_itself(&self) -> bool {
        true
    }
}

// To ask about what is only watched would be a request that nobody sent.
#[tokio::test]
async fn nobody_is_asked_about_what_is_only_watched() {
    let quiet = Duration::from_secs(600);
    let recovery = Recovery::Reconcile { absent: Absent::Hold, quiet };
    let policy = Policy::default().with_recovery(recovery).with_mode(Mode::Observe);
    let (once, asked) = (Once::new(MemoryStore::new()), Arc::new(AtomicUsize::new(0)));
    let layer = once.layer(caller, policy).with_reconciler(Asked(asked.clone()));
    let app = Router::new().fallback(|| async { StatusCode::BAD_GATEWAY }).layer(layer);
    let observed = Observed { app, once, executions: Arc::default() };
    for _ in 0..2 {
        observed.send(told(KEY, BODY)).await;
        while observed.once.executing() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    observed
        .counts(counts(|c| {
            c.observed_executed = 1;
            c.observed_unknown = 2;
        }))
        .await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// With its length told, or it is not watched.
fn told(key: &str, body: &'static str) -> Request<Body> {
    let mut request = post(key, body);
    request.headers_mut().insert("content-length", body.len().into());
    request
}

fn counts(change: impl FnOnce(&mut Counts)) -> Counts {
    let mut counts = Counts::default();
    change(&mut counts);
    counts
}

/// A trail that told of replays would prove a deduplication that did not happen.
#[tokio::test]
async fn the_audit_trail_hears_of_no_replay_on_an_observed_route() {
    let store = MemoryStore::new().with_audit(onlyonce::store::audit::AuditOptions::default());
    let once = Once::new(store);
    let layer = once.layer(caller, Policy::default().with_mode(Mode::Observe));
    let app = Router::new().fallback(|| async { StatusCode::CREATED }).layer(layer);
    let observed = Observed { app, once, executions: Arc::default() };
    let mut events = observed.once.events();
    for _ in 0..3 {
        observed.send(told(KEY, BODY)).await;
        while observed.once.executing() > 0 {
            tokio::task::yield_now().await;
        }
    }
    observed
        .counts(counts(|c| {
            c.observed_executed = 1;
            c.observed_replayed = 2;
        }))
        .await;
    while let Some(heard) = events.try_next() {
        let onlyonce::Heard::Event(event) = heard else { panic!("nothing is missed") };
        assert_ne!(event.kind, onlyonce::EventKind::Replayed);
    }
    let query = onlyonce::store::audit::EntryQuery::all(100);
    let entries = observed.once.operations().audit(query).await.unwrap().entries;
    assert!(
        entries.iter().all(|entry| entry.note.kind != onlyonce::EventKind::Replayed),
        "{entries:?}"
    );
}

#[tokio::test]
async fn an_observed_route_runs_everything_and_counts_what_would_have_happened() {
    let observed = Observed::new(Policy::default());
    assert_eq!(observed.send(told(KEY, BODY)).await.body, BODY);
    observed.counts(counts(|c| c.observed_executed = 1)).await;
    assert!(!observed.send(told(KEY, BODY)).await.is_replay());
    observed
        .counts(counts(|c| {
            c.observed_executed = 1;
            c.observed_replayed = 1;
        }))
        .await;
    assert_eq!(observed.send(told(KEY, "{}")).await.status, StatusCode::CREATED);
    observed
        .counts(counts(|c| {
            c.observed_executed = 1;
            c.observed_replayed = 1;
            c.observed_reused = 1;
        }))
        .await;
    assert_eq!(observed.executions(), 3, "everything ran");
}

#[tokio::test]
async fn what_would_have_been_refused_runs_and_is_counted() {
    let policy = Policy::default().with_key(KeyNeed::Required).with_request_bytes_max(16);
    let observed = Observed::new(policy);
    let mut keyless = told(KEY, BODY);
    keyless.headers_mut().remove("idempotency-key");
    let mut nobody = told(KEY, BODY);
    nobody.headers_mut().insert("x-api-key", "nobody".parse().unwrap());
    let refused = [keyless, told("a,b", BODY), nobody, told(KEY, r#"{"amount":79987998}"#)];
    let count = refused.len();
    for request in refused {
        assert_eq!(observed.send(request).await.status, StatusCode::CREATED);
    }
    observed.counts(counts(|c| c.observed_refused = count as u64)).await;
    assert_eq!(observed.executions(), count);
}

#[tokio::test]
async fn a_request_passes_unseen_where_there_is_no_room_for_its_body() {
    let limits = Limits::default().with_bodies_bytes_max(BODY.len() - 1);
    let observed = Observed::bounded(Policy::default(), limits);
    let halves = || {
        let halves = [&BODY[..5], &BODY[5..]].map(Ok::<_, std::io::Error>);
        let mut request = post(KEY, Body::from_stream(stream::iter(halves)));
        request.headers_mut().insert("content-length", BODY.len().into());
        request
    };
    for n in 1..=2 {
        let answer = observed.send(halves()).await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::CREATED, BODY.as_bytes()));
        observed.counts(counts(|c| c.unobserved = n)).await;
    }
    assert_eq!(observed.send(post(KEY, BODY)).await.body, BODY, "without a length");
    observed.counts(counts(|c| c.unobserved = 3)).await;
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_services_business() {
    let observed = Observed::new(Policy::default());
    let broken = [Ok(Bytes::from_static(b"{\"am")), Err(std::io::Error::other("reset"))];
    let mut request = post(KEY, Body::from_stream(stream::iter(broken)));
    request.headers_mut().insert("content-length", BODY.len().into());
    let answer = observed.send(request).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "as the service answers it");
    observed.counts(counts(|c| c.unobserved = 1)).await;
    assert_eq!(observed.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_slow_passes_unseen_and_whole() {
    let observed = Observed::new(Policy::default());
    let (rest, mut has_rest) = watch::channel(false);
    let second = async move {
        has_rest.wait_for(|has| *has).await.unwrap();
        Ok::<_, std::io::Error>(&BODY[5..])
    };
    let body = stream::once(async { Ok(&BODY[..5]) }).chain(stream::once(second));
    let mut request = post(KEY, Body::from_stream(body));
    request.headers_mut().insert("content-length", BODY.len().into());
    let sender = observed.clone();
    let sent = tokio::spawn(async move { sender.send(request).await });
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(observed.executions(), 1, "it is passed on with what has come");
    rest.send_replace(true);
    assert_eq!(sent.await.unwrap().body, BODY);
    assert_eq!(observed.once.counts(), counts(|c| c.unobserved = 1));
}
