//! The way of a request through the layer, from its head to its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};
use tower_service::Service;

use super::Body;
use super::capture::{Claimed, call};
use super::early_data::is_replayable;
use super::for_caller::ForCaller;
use super::layer::Rules;
use super::overrides::Overrides;
use super::request::{self, Whole};
use super::{json_rpc, velocity};
use crate::crash::{CrashPoint, crash_point};
use crate::fingerprint::{Digest, Fingerprint, overrides_method};
use crate::key::{self, Key, KeySource};
use crate::once::{Ask, Asking, OperationEvent, Refusal};
use crate::policy::{KeyNeed, Mode, Policy, StoreDown};
use crate::problem::Problem;
use crate::record::KeyText;
use crate::scope::{OperationId, Principal};
use crate::store::BoxError;

pub(super) struct Story<S> {
    pub(super) rules: Arc<Rules>,
    pub(super) inner: S,
}

impl<S, A> Story<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    /// The whole way:
    ///
    /// 1. Unguarded requests pass.
    /// 2. A key in the head is checked before the body is read.
    /// 3. The body is read whole, and the request is verified where the layer has a verifier.
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
        let rules = self.rules.clone();
        let (policy, once) = (&rules.policy, &rules.once.inner);
        if !policy.methods().contains(&head.method) {
            return self.pass(head, body).await;
        }
        if policy.mode() == Mode::Observe {
            return Box::pin(self.observe(head, body)).await;
        }
        let asked_at = once.clock.boot();
        let early = match key_of_head(policy, &head) {
            Ok(Early::NoKey) => return self.unkeyed(head, Body::new(body)).await,
            Ok(early) => early,
            Err(problem) => return Ok(rules.refused(problem)),
        };
        let body = match request::read(&rules, &head, body).await {
            Ok(body) => body,
            Err(problem) => return Ok(problem.response(policy)),
        };
        let raw = request::raw_digest(&head, &body);
        let key = match key_of_body(early, policy, &head, &body, raw) {
            Ok(Some(key)) => key,
            Ok(None) => return self.unkeyed(head, body.into_body()).await,
            Err(problem) => return Ok(rules.refused(problem)),
        };
        let (who, if_free) = match rules.admit(&head, &key) {
            Ok(admitted) => admitted,
            Err(problem) => return Ok(rules.refused(problem)),
        };
        let id = request::id(&rules, &head, &body.bytes, &who, &key);
        if Claimed::is_executed(&head, &rules.once, id) {
            return self.forward(head, body.into_body()).await;
        }
        let for_caller = ForCaller::of(&rules, &self.inner, &head, &body.bytes);
        let permitted = rules.permission(&head);
        let secret = once.secret.as_ref();
        let fingerprint = || request::kept_fingerprint(policy, secret, (&head, &body), raw);
        let kept_raw = Fingerprint::kept_raw(raw, secret);
        if let Some(refusal) = once.cached(id, &kept_raw, fingerprint) {
            let refusal = refusal.permitted(permitted, policy).await;
            self.cached(id, &key, &who, &refusal);
            rules.took(asked_at);
            return Ok(for_caller.refused(&refusal, policy, &key).await);
        }
        let ask = self.ask(id, &head, &key, &who, fingerprint());
        let allowances = velocity::allowances(&rules, &head, &body, &who);
        let ends_at = rules.ends_at(&head, asked_at);
        let ask = Arc::new(Ask { ends_at, if_free, allowances, ..ask });
        let work = call(self.inner, (head, key.clone()), body, ask.clone(), once.clone());
        // In a box, so that the future of a replay is small.
        let ended = Box::pin(once.answer(ask, permitted, work)).await;
        rules.took(asked_at);
        crash_point(CrashPoint::BeforeReply);
        Ok(for_caller.ended(ended, policy, &key).await)
    }

    /// Counts and tells a retry that the cache answers.
    fn cached(&self, id: OperationId, key: &Key, principal: &Principal, refusal: &Refusal) {
        self.rules.counters.refused_by(refusal);
        let Some((kind, status)) = refusal.event() else { return };
        self.rules.once.inner.tell(|at| OperationEvent {
            at,
            kind,
            id,
            key: KeyText::new(key.as_str()),
            route: self.rules.policy.route().clone(),
            principal: principal.kept(self.rules.once.inner.secret.as_ref()),
            attempt: None,
            status,
            by: None,
        });
    }

    /// Passes an unguarded request on, or refuses one that only seems unguarded.
    async fn pass<B>(self, head: Parts, body: B) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if slips_by(&self.rules.policy, &head) {
            return Ok(self.rules.refused(Problem::method_unclear()));
        }
        if is_replayable(&head) && self.rules.policy.mode() == Mode::Enforce {
            return Ok(self.rules.refused(Problem::too_early()));
        }
        self.forward(head, Body::new(body)).await
    }

    /// Passes on a request that could have had a key, and has none.
    async fn unkeyed(self, head: Parts, body: Body) -> Result<Response<Body>, S::Error> {
        if is_replayable(&head) {
            return Ok(self.rules.refused(Problem::too_early()));
        }
        self.rules.counters.unkeyed.one();
        self.forward(head, body).await
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

    /// The policy of the route. What came in early data never runs unguarded: a copy of it would run too.
    fn policy(&self, head: &Parts) -> Arc<Policy> {
        let policy = &self.rules.policy;
        match policy.store_down() == StoreDown::Pass && is_replayable(head) {
            true => Arc::new((**policy).clone().with_store_down(StoreDown::Refuse)),
            false => policy.clone(),
        }
    }

    pub(super) fn ask(
        &self,
        id: OperationId,
        head: &Parts,
        key: &Key,
        who: &Principal,
        fingerprint: Fingerprint,
    ) -> Ask {
        Ask {
            id,
            key: KeyText::new(key.as_str()),
            fingerprint,
            principal: who.kept(self.rules.once.inner.secret.as_ref()),
            place: Some(request::place(&self.rules, head, who)),
            policy: self.policy(head),
            counters: self.rules.counters.clone(),
            asking: self.asking(head),
            target: self.target(head),
            failure: self.rules.failure.clone(),
            ends_at: None,
            if_free: None,
            allowances: Vec::new(),
        }
    }
}

/// Whether a request that may have a key is not guarded only because of how it states its method: in lower case, or
/// in a header that many services take for the method.
pub(crate) fn slips_by(policy: &Policy, head: &Parts) -> bool {
    let is_guarded = |name: &[u8]| {
        let is_method = |method: &Method| method.as_str().as_bytes().eq_ignore_ascii_case(name);
        policy.methods().iter().any(is_method)
    };
    let overrides = Overrides::of(&head.uri, &head.headers);
    let is_overridden = overrides.is_unclear || overrides.names.iter().any(|name| is_guarded(name));
    policy.mode() == Mode::Enforce
        && (is_guarded(head.method.as_str().as_bytes()) || is_overridden)
        && may_have_key(policy, head)
}

/// Whether the request has a key, may have one in its body, or must have one.
pub(super) fn may_have_key(policy: &Policy, head: &Parts) -> bool {
    !matches!(key_of_head(policy, head), Ok(Early::NoKey))
}

/// What the head alone tells about the key.
pub(crate) enum Early {
    /// The key is in the head.
    Key(Key),
    /// There is no key, and none is required.
    NoKey,
    /// The key may be in the body.
    InBody,
}

pub(crate) fn key_of_head(policy: &Policy, head: &Parts) -> Result<Early, Problem> {
    if policy.key_from().iter().any(KeySource::needs_body) {
        return Ok(Early::InBody);
    }
    match key::find(policy.key_from(), head, None, None, policy.key_rules()) {
        Ok(Some(key)) => judged(policy, head).map(|()| Early::Key(key)),
        Ok(None) if policy.key() == KeyNeed::Required => Err(Problem::key_missing(policy)),
        Ok(None) => Ok(Early::NoKey),
        Err(error) => Err(Problem::key_invalid(&error, policy)),
    }
}

/// Refuses a keyed request that the service may read as a request to another path, or with another method.
fn judged(policy: &Policy, head: &Parts) -> Result<(), Problem> {
    request::plain(policy, head)?;
    match overrides_method(&head.headers) && Overrides::of(&head.uri, &head.headers).is_unclear {
        true => Err(Problem::method_unclear()),
        false => Ok(()),
    }
}

pub(crate) fn key_of_body(
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
        Ok(None) if json_rpc::has_keyed_message(policy.key_from(), head, &body.bytes) => {
            Err(Problem::keyed_batch())
        }
        Ok(None) if policy.key() == KeyNeed::Required => Err(Problem::key_missing(policy)),
        Ok(None) => Ok(None),
        Ok(Some(key)) => judged(policy, head).map(|()| Some(key)),
        Err(error) => Err(Problem::key_invalid(&error, policy)),
    }
}
