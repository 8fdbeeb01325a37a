//! `authorize`: asks the upstream whether the credentials of a caller still hold, before it is answered from a record.
//!
//! 1. 2xx: they do, and that is believed for a few seconds. 401 and 403 are the caller's answer, and are never kept.
//!    Everything else, a redirect too, tells nothing: the caller is told nothing either.
//! 2. The question has the headers that say who is asking, and nothing else of the request.
//! 3. Callers with the same credentials who wait for an answer at the same time share one question.
//! 4. What is kept is a digest of these headers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use onlyonce::Permission;
use onlyonce::clock::{Clock, SystemClock};
use onlyonce::http::Body;
use onlyonce::record::{Kept, Response};
use onlyonce::store::BoxError;
use quick_cache::sync::Cache;
use ring::digest;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::credentials::Credentials;
use super::upstream::{Answer, Terms, Upstream};
use crate::config::{AuthorizeRule, Route};

/// Asks the question of one route.
#[derive(Clone, Debug)]
pub(super) struct Authorizer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rule: AuthorizeRule,
    credentials: Credentials,
    upstream: Arc<Upstream>,
    answer_max: Duration,
    /// Until when credentials are believed to hold, on the boot clock.
    granted: Cache<Digest, Duration>,
    asking: Mutex<HashMap<Digest, watch::Receiver<Option<Permission>>>>,
    /// Where it asks: the connections of the upstream belong to one runtime.
    runtime: Handle,
}

type Digest = [u8; 32];

impl Authorizer {
    pub(super) fn new(
        rule: AuthorizeRule,
        route: &Route,
        upstream: Arc<Upstream>,
        answer_max: Duration,
    ) -> Self {
        Self(Arc::new(Inner {
            rule,
            credentials: Credentials::of(route),
            upstream,
            answer_max: answer_max.min(ANSWER_MAX),
            granted: Cache::new(GRANTED_MAX),
            asking: Mutex::default(),
            runtime: Handle::current(),
        }))
    }

    /// Whether the credentials of the request with this head hold. Nothing is asked until this is polled.
    pub(super) fn ask(&self, head: &Parts) -> impl Future<Output = Permission> + Send + use<> {
        let (inner, question) = (self.0.clone(), self.0.question(head));
        async move {
            let asked = digest_of(question.headers());
            match inner.is_granted(&asked) {
                true => Permission::Granted,
                false => inner.answer(asked, question).await,
            }
        }
    }
}

impl Inner {
    fn question(&self, head: &Parts) -> Request<Body> {
        let mut request = Request::new(Body::default());
        let target = self.rule.question.target().parse();
        *request.uri_mut() = target.expect("the target of a question is one");
        *request.headers_mut() = self.credentials.copied(&head.headers);
        // The upstream may tell its tenants apart by it.
        if let Some(host) = host(head) {
            request.headers_mut().insert(header::HOST, host);
        }
        request
    }

    fn is_granted(&self, asked: &Digest) -> bool {
        self.granted.get(asked).is_some_and(|until| SystemClock.boot() < until)
    }

    /// The answer to the question that is under way, else to this one.
    async fn answer(self: Arc<Self>, asked: Digest, question: Request<Body>) -> Permission {
        let Some(mut told) = self.under_way(asked, question) else { return Permission::Unknown };
        let told = told.wait_for(Option::is_some).await;
        told.ok().and_then(|told| told.clone()).unwrap_or(Permission::Unknown)
    }

    /// Asks in a task of its own, so that the question goes on for the others if its caller leaves. Nothing where too many
    /// questions are under way.
    fn under_way(
        self: &Arc<Self>,
        asked: Digest,
        question: Request<Body>,
    ) -> Option<watch::Receiver<Option<Permission>>> {
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = asking.get(&asked) {
            return Some(told.clone());
        }
        if asking.len() >= ASKING_MAX {
            return None;
        }
        let (tell, told) = watch::channel(None);
        asking.insert(asked, told.clone());
        // A runtime that has ended drops the task, and its place, at once.
        drop(asking);
        let place = Place { inner: self.clone(), asked };
        self.runtime.spawn(async move {
            let permission = place.inner.find(asked, question).await;
            // Given back before the answer is told, so that who asks after it has a question of its own.
            drop(place);
            tell.send_replace(Some(permission));
        });
        Some(told)
    }

    async fn find(&self, asked: Digest, question: Request<Body>) -> Permission {
        let begun_at = SystemClock.boot();
        let found = timeout(self.answer_max, self.send(question)).await;
        let permission =
            found.map_or(Permission::Unknown, |found| found.unwrap_or(Permission::Unknown));
        // From before it was sent: the credentials may have been revoked right after the upstream had looked at them.
        let until = begun_at.saturating_add(self.rule.believed_for);
        if permission == Permission::Granted && SystemClock.boot() < until {
            self.granted.insert(asked, until);
        }
        permission
    }

    async fn send(&self, question: Request<Body>) -> Result<Permission, BoxError> {
        // A question is safe: it takes any connection that is there.
        let terms = Terms::new(self.answer_max, Duration::ZERO);
        let answer = self.upstream.send(question, terms).await?;
        match answer.status() {
            status if status.is_success() => Ok(Permission::Granted),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Ok(Permission::Refused(Arc::new(refusal(answer).await)))
            }
            _ => Ok(Permission::Unknown),
        }
    }
}

/// A question under way.
struct Place {
    inner: Arc<Inner>,
    asked: Digest,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.asked);
    }
}

/// What the service says to a caller whose credentials do not hold; without its body, if that is too long or broke off.
async fn refusal(answer: http::Response<Answer>) -> Response {
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).ok();
    let mut headers = HeaderMap::new();
    let about_body = if body.is_some() { &OF_BODY[..] } else { &[] };
    for name in [&header::WWW_AUTHENTICATE].into_iter().chain(about_body) {
        for value in head.headers.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let body = Kept::Bytes { body: body.unwrap_or_else(Bytes::new), trailers: None };
    Response { status: head.status, headers, body }
}

/// The `Host` that the upstream sees.
fn host(head: &Parts) -> Option<HeaderValue> {
    let field = head.headers.get(header::HOST).filter(|host| !host.is_empty()).cloned();
    field.or_else(|| head.uri.authority().and_then(|host| host.as_str().parse().ok()))
}

/// Of each value with its name, each with its length before it.
fn digest_of(headers: &HeaderMap) -> Digest {
    let mut hash = digest::Context::new(&digest::SHA256);
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    let digest = hash.finish();
    std::array::from_fn(|place| digest.as_ref()[place])
}

/// Of a refusal that is passed on, besides how to authenticate.
const OF_BODY: [HeaderName; 3] =
    [header::CONTENT_TYPE, header::CONTENT_LANGUAGE, header::CONTENT_ENCODING];
/// Callers that are believed, on one route.
const GRANTED_MAX: usize = 10_000;
/// Questions under way, on one route.
const ASKING_MAX: usize = 1_000;
/// How long the upstream may take for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
