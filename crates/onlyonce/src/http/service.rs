//! The way of a request through the layer, from its head to its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, header};
use tower_service::Service;

use super::Body;
use super::capture::{Claimed, call};
use super::layer::Rules;
use super::problem;
use super::request::{self, Whole};
use crate::fingerprint::{Digest, Fingerprint, METHOD_OVERRIDES};
use crate::key::{self, Key, KeySource};
use crate::once::{Ask, Asking, Ended, Once};
use crate::policy::{KeyNeed, Mode, Policy};
use crate::problem::Problem;
use crate::record::KeyText;
use crate::scope::{OperationId, Principal};
use crate::store::BoxError;

pub(super) struct Story<S> {
    pub(super) once: Once,
    pub(super) rules: Arc<Rules>,
    pub(super) inner: S,
}

impl<S, A> Story<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    /// The whole way:
    ///
    /// 1. Unguarded requests pass.
    /// 2. A key in the head is checked before the body is read.
    /// 3. The body is read whole.
    /// 4. Scope and key make the operation's id; the fingerprint tells whether the request is the same. A completed
    ///    operation in the cache is answered from there.
    /// 5. The claim, the call and the settling happen in a task of their own. This connection only awaits its answer,
    ///    or waits for the answer of another request.
    pub(super) async fn tell<B>(self, request: Request<B>) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let policy = self.rules.policy.clone();
        if !policy.methods().contains(&head.method) {
            return self.pass(head, body).await;
        }
        if policy.mode() == Mode::Observe {
            return self.observe(head, body).await;
        }
        let early = match key_of_head(&policy, &head) {
            Ok(Early::NoKey) => return self.forward(head, Body::new(body)).await,
            Ok(early) => early,
            Err(problem) => return Ok(problem.response(&policy)),
        };
        let body = match request::read(&self.once, &self.rules, &head, body).await {
            Ok(body) => body,
            Err(problem) => return Ok(problem.response(&policy)),
        };
        let raw = request::raw_digest(&head, &body);
        let key = match key_of_body(early, &policy, &head, &body, raw) {
            Ok(Some(key)) => key,
            Ok(None) => return self.forward(head, body.into_body()).await,
            Err(problem) => return Ok(problem.response(&policy)),
        };
        let who = match self.rules.identify(&head) {
            Ok(who) => who,
            Err(problem) => return Ok(problem.response(&policy)),
        };
        let id = request::id(&self.once, &policy, &head, &who, &key);
        if Claimed::is_executed(&head, &self.once, id) {
            return self.forward(head, body.into_body()).await;
        }
        let origin = head.headers.get(header::ORIGIN).cloned();
        let fingerprint = || request::fingerprint(&policy, &head, &body, raw);
        if let Some(refusal) = self.once.inner.cached(id, &raw, fingerprint) {
            self.rules.counters.refused(&refusal);
            return Ok(problem::refused(&refusal, &policy, key.as_str(), origin.as_ref()));
        }
        let fingerprint = fingerprint();
        let ask = Arc::new(self.ask(id, &policy, &head, &key, &who, fingerprint));
        let once = self.once.inner.clone();
        let work = call(self.inner, (head, key.clone()), body, (id, policy.clone()), once.clone());
        Ok(match once.answer(ask, work).await {
            Ended::Fresh(response) => response,
            Ended::Refused(refusal) => {
                problem::refused(&refusal, &policy, key.as_str(), origin.as_ref())
            }
            Ended::Unsettled => problem::unsettled(&policy),
        })
    }

    /// Passes an unguarded request on, or refuses one that only seems unguarded.
    async fn pass<B>(self, head: Parts, body: B) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        match slips_by(&self.rules.policy, &head) {
            true => Ok(problem::method_unclear(&self.rules.policy)),
            false => self.forward(head, Body::new(body)).await,
        }
    }

    /// Calls the inner service as if there were no layer.
    pub(super) async fn forward(
        mut self,
        head: Parts,
        body: Body,
    ) -> Result<Response<Body>, S::Error> {
        let response = self.inner.call(Request::from_parts(head, body)).await?;
        Ok(response.map(Body::new))
    }

    fn asking(&self, head: &Parts) -> Option<Asking> {
        let reconciler = self.rules.reconciler.clone()?;
        Some(Asking { reconciler, headers: head.headers.clone() })
    }

    /// How the request is sent; and, where there is a reconciler, its host and path for later questions.
    fn target(&self, head: &Parts) -> Arc<str> {
        match &self.rules.reconciler {
            Some(_) => request::target(head, &self.rules.sent_as).into(),
            None => self.rules.sent_as.clone(),
        }
    }

    pub(super) fn ask(
        &self,
        id: OperationId,
        policy: &Arc<Policy>,
        head: &Parts,
        key: &Key,
        who: &Principal,
        fingerprint: Fingerprint,
    ) -> Ask {
        Ask {
            id,
            key: KeyText::new(key.as_str()),
            fingerprint,
            principal: *who,
            policy: policy.clone(),
            counters: self.rules.counters.clone(),
            asking: self.asking(head),
            target: self.target(head),
            failure: self.rules.failure.clone(),
        }
    }
}

/// Whether a request that may have a key is not guarded only because of how it states its method: in lower case, or
/// in a header that many services take for the method.
pub(super) fn slips_by(policy: &Policy, head: &Parts) -> bool {
    let is_guarded = |name: &[u8]| {
        let is_method = |method: &Method| method.as_str().as_bytes().eq_ignore_ascii_case(name);
        policy.methods().iter().any(is_method)
    };
    let overrides = METHOD_OVERRIDES.into_iter().flat_map(|name| head.headers.get_all(name));
    let mut names = overrides.map(|value| value.as_bytes().trim_ascii());
    policy.mode() == Mode::Enforce
        && (is_guarded(head.method.as_str().as_bytes()) || names.any(is_guarded))
        && !matches!(key_of_head(policy, head), Ok(Early::NoKey))
}

/// What the head alone tells about the key.
pub(super) enum Early {
    /// The key is in the head.
    Key(Key),
    /// There is no key, and none is required.
    NoKey,
    /// The key may be in the body.
    InBody,
}

pub(super) fn key_of_head(policy: &Policy, head: &Parts) -> Result<Early, Problem> {
    if policy.key_from().iter().any(KeySource::needs_body) {
        return Ok(Early::InBody);
    }
    match key::find(policy.key_from(), head, None, None, policy.key_rules()) {
        Ok(Some(key)) => Ok(Early::Key(key)),
        Ok(None) if policy.key() == KeyNeed::Required => Err(Problem::key_missing(policy)),
        Ok(None) => Ok(Early::NoKey),
        Err(error) => Err(Problem::key_invalid(&error, policy)),
    }
}

pub(super) fn key_of_body(
    early: Early,
    policy: &Policy,
    head: &Parts,
    body: &Whole,
    raw: Digest,
) -> Result<Option<Key>, Problem> {
    if let Early::Key(key) = early {
        return Ok(Some(key));
    }
    let is_asked = policy.key_from().contains(&KeySource::Fingerprint);
    let fingerprint = is_asked.then(|| request::fingerprint(policy, head, body, raw));
    match key::find(
        policy.key_from(),
        head,
        Some(&body.bytes),
        fingerprint.as_ref(),
        policy.key_rules(),
    ) {
        Ok(None) if policy.key() == KeyNeed::Required => Err(Problem::key_missing(policy)),
        Ok(key) => Ok(key),
        Err(error) => Err(Problem::key_invalid(&error, policy)),
    }
}
