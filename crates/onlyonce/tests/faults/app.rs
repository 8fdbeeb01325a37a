//! A guarded service, and requests to it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use onlyonce::http::{Body, Guarded, IDEMPOTENT_REPLAYED, OnceLayer};
use onlyonce::scope::Principal;
use onlyonce::store::BoxError;
use onlyonce::{Once, Policy};
use tower_layer::Layer;
use tower_service::Service;

pub(crate) type App = Guarded<Handler>;
pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;
pub(crate) type Answer = Result<Response<AnswerBody>, BoxError>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The service behind the layer. It counts how often it was called: that is what "executed" means.
#[derive(Clone)]
pub(crate) struct Handler {
    calls: Arc<AtomicUsize>,
    answer: Arc<dyn Fn(Request<Body>) -> Answering + Send + Sync>,
}

impl Handler {
    pub(crate) fn new<F>(answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self { calls: Arc::default(), answer: Arc::new(move |request| Box::pin(answer(request))) }
    }

    /// Answers at once, each time with another number.
    pub(crate) fn counting() -> Self {
        let parcels = AtomicUsize::new(0);
        Self::new(move |_| {
            let parcel = parcels.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(created(format!("parcel {parcel}"))) }
        })
    }

    /// Answers with another number each time, when `gate` lets it.
    pub(crate) fn gated(gate: &Gate) -> Self {
        let (parcels, gate) = (AtomicUsize::new(0), gate.clone());
        Self::new(move |_| {
            let parcel = parcels.fetch_add(1, Ordering::SeqCst) + 1;
            let gate = gate.clone();
            async move {
                gate.passed().await;
                Ok(created(format!("parcel {parcel}")))
            }
        })
    }

    /// How often it was called.
    pub(crate) fn executed(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// This service behind a layer of `once`.
    pub(crate) fn guarded(&self, once: &Once, policy: Policy) -> App {
        layer(once, policy).layer(self.clone())
    }
}

/// A layer whose callers say who they are, or are all the same.
pub(crate) fn layer(once: &Once, policy: Policy) -> OnceLayer {
    let principal = |head: &http::request::Parts| {
        let who = head.headers.get("x-who");
        Principal::of("test", who.map_or(&b"me"[..], |who| who.as_bytes()))
    };
    once.layer(principal, policy)
}

impl Service<Request<Body>> for Handler {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        self.calls.fetch_add(1, Ordering::SeqCst);
        (self.answer)(request)
    }
}

/// Closed at first; everybody passes once it is open.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Lock>);

struct Lock(tokio::sync::Semaphore);

impl Default for Lock {
    fn default() -> Self {
        Self(tokio::sync::Semaphore::new(0))
    }
}

impl Gate {
    pub(crate) fn open(&self) {
        self.0.0.close();
    }

    pub(crate) async fn passed(&self) {
        let _closed = self.0.0.acquire().await;
    }
}

/// 201 with this body.
pub(crate) fn created(body: impl Into<Bytes>) -> Response<AnswerBody> {
    answered(StatusCode::CREATED, body)
}

/// An answer with this status and body.
pub(crate) fn answered(status: StatusCode, body: impl Into<Bytes>) -> Response<AnswerBody> {
    let body = Full::new(body.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}

/// `POST /charges` with this key.
pub(crate) fn charge(key: &str) -> Request<Full<Bytes>> {
    charge_with(key, Full::from("{\"amount\":1}"))
}

/// The same with a body of its own.
pub(crate) fn charge_with<B>(key: &str, body: B) -> Request<B> {
    let request = Request::post("http://shop.test/charges")
        .header("idempotency-key", key)
        .header("content-type", "application/json");
    request.body(body).expect("a valid request")
}

/// What a caller got.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    /// Reads the whole of `response`.
    pub(crate) async fn whole(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("the whole body").to_bytes();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.headers.contains_key(IDEMPOTENT_REPLAYED)
    }

    /// Executed for this very request.
    pub(crate) fn is_fresh(&self) -> bool {
        self.status == 201 && !self.is_replay()
    }

    /// A member of the problem document.
    pub(crate) fn member(&self, name: &str) -> String {
        let document: serde_json::Value =
            serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null);
        match &document[name] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.member("code").as_str()), (status, code));
    }

    #[track_caller]
    pub(crate) fn assert_replay_of(&self, first: &Self) {
        assert!(self.is_replay(), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
    }
}

/// The whole answer to `request`.
pub(crate) async fn send<B>(app: &App, request: Request<B>) -> Got
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut app = app.clone();
    poll_fn(|cx| Service::<Request<B>>::poll_ready(&mut app, cx))
        .await
        .expect("the service is ready");
    let response = app.call(request).await.expect("the layer answers");
    Got::whole(response).await
}

/// Sends in a task of its own.
pub(crate) fn send_apart(app: &App, key: &str) -> tokio::task::JoinHandle<Got> {
    let (app, request) = (app.clone(), charge(key));
    tokio::spawn(async move { send(&app, request).await })
}

/// Sends again until the answer is not "in progress".
pub(crate) async fn retry_until_ended(app: &App, key: &str) -> Got {
    let retry = async {
        loop {
            let got = send(app, charge(key)).await;
            if got.member("code") != "idempotency_in_progress" {
                return got;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    super::soon("the operation to end", retry).await
}
