//! The tower layer, and the service that it wraps around another.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryFutureExt;
use http::request::Parts;
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::look_up::look_up;
use super::repeatability::{self, Judged};
use super::request::{self, Whole};
use super::service::{Story, may_have_key, slips_by};
use super::token;
use super::{Body, deadline, grpc, key_age};
use crate::clock::{StoreTime, as_ms};
use crate::key::Key;
use crate::once::{Asked, Counters, Once, Permission, Reconciler, Refusal};
use crate::policy::{KeyNeed, Mode, OldKeys, Policy};
use crate::problem::{self, Problem};
use crate::record;
use crate::scope::Principal;
use crate::store::BoxError;

impl Once {
    /// A layer that guards a service by `policy`.
    ///
    /// **Routers that strip a prefix.** Scope and fingerprint use the path that the client sent. Where a router in
    /// front of this layer cuts `/accounts/1` off the path and does not pass the whole path on, `/accounts/1/charges` and
    /// `/accounts/2/charges` with one key are one operation: the second account is never charged, and gets the
    /// answer of the first.
    ///
    /// - axum 0.8 passes it on: below `nest` and `nest_service` there is nothing to do.
    /// - axum 0.7, and any other router that changes the URI of a request: put the layer in front of the router, or
    ///   insert a [`ClientUri`](super::ClientUri) into the request's extensions there.
    /// - Middleware of a `Router::layer` that rewrites a path to a suffix of what the client sent is taken for a router
    ///   that strips a prefix, so that the rewritten path does not count: put such middleware around the router, or
    ///   insert a [`ClientUri`](super::ClientUri) with the path that shall count.
    ///
    /// **The caller.** `principal_of_caller` returns a [`Principal`], an `Option` of one (`None` is answered 401) or a
    /// [`Who`]. There is no default, because a wrong one shows one caller the answer of another. Make it of what your
    /// service itself knows the caller by once it has authenticated it, such as the id of an account. Where that is several
    /// credentials (the token of an app beside the session of its user), make it of all of them; where it cannot be told,
    /// return [`Who::Unclear`].
    pub fn layer<F, W>(&self, principal_of_caller: F, policy: Policy) -> OnceLayer
    where
        F: Fn(&Parts) -> W + Send + Sync + 'static,
        W: Into<Who>,
    {
        let (policy, counters) = self.inner.learn(policy);
        let failure = Arc::new(problem::failed(&policy));
        OnceLayer {
            rules: Arc::new(Rules {
                once: self.clone(),
                identify: Arc::new(move |head| principal_of_caller(head).into()),
                policy,
                counters,
                failure,
                sent_as: Arc::default(),
                reconciler: None,
                verifier: None,
                authorizer: None,
                fetches_locations: false,
            }),
        }
    }
}

/// The caller of a request, if it can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Who {
    /// The request is from this caller.
    Known(Principal),
    /// The request has no credentials, and anonymous callers are refused: 401.
    Nobody,
    /// The credentials do not identify one caller: 400, with this sentence about what to do.
    Unclear(String),
    /// The credentials are not genuine: 401, with this sentence about what is wrong.
    Invalid(String),
    /// Whether the credentials are genuine cannot be found out now, because whoever knows does not answer: 503, with
    /// this sentence and `Retry-After`.
    Unverified(String),
}

impl Who {
    /// The caller, or what the request is refused with.
    pub(crate) fn principal(self) -> Result<Principal, Problem> {
        match self {
            Self::Known(principal) => Ok(principal),
            Self::Nobody => Err(Problem::anonymous()),
            Self::Unclear(why) => Err(Problem::principal_unclear(&why)),
            Self::Invalid(why) => Err(Problem::principal_invalid(&why)),
            Self::Unverified(why) => Err(Problem::principal_unverified(&why)),
        }
    }
}

impl From<Principal> for Who {
    fn from(principal: Principal) -> Self {
        Self::Known(principal)
    }
}

/// `None` is [`Who::Nobody`]: callers without credentials must not share their keys.
impl From<Option<Principal>> for Who {
    fn from(principal: Option<Principal>) -> Self {
        principal.map_or(Self::Nobody, Self::Known)
    }
}

impl OnceLayer {
    /// The reconciler that `recovery = "reconcile"` asks. Default: none, so that an unknown outcome is held. A wrong
    /// answer of it becomes the answer of every retry, or runs an operation twice.
    ///
    /// Where two layers of one [`Once`] have a reconciler under the same route name, neither is asked in the background:
    /// give each a name with [`Policy::with_route`].
    #[must_use]
    pub fn with_reconciler(self, reconciler: impl Reconciler) -> Self {
        let reconciler: Arc<dyn Reconciler> = Arc::new(reconciler);
        if self.rules.policy.mode() == Mode::Enforce {
            self.rules.once.inner.learn_reconciler(&self.rules.policy, reconciler.clone());
        }
        let rules = Rules { reconciler: Some(reconciler), ..(*self.rules).clone() };
        Self { rules: Arc::new(rules) }
    }

    /// Refuses every guarded request that `verifier` does not take for genuine: 401, before the key is claimed. It is given
    /// the head, the whole body as it came, and the time of this node. Default: none. The text of its error is shown to
    /// the sender.
    ///
    /// A key is required from here on, whatever the policy says: a request without a key would pass unverified. Methods
    /// that the policy does not guard still pass.
    ///
    /// In [`Mode::Observe`] too what is not genuine is refused, and so is what cannot be read whole to be verified (413, 408).
    ///
    /// The feature `webhook` has verifiers for the signatures of common senders.
    #[must_use]
    pub fn with_verifier<F, E>(self, verifier: F) -> Self
    where
        F: Fn(&Parts, &[u8], StoreTime) -> Result<(), E> + Send + Sync + 'static,
        E: std::fmt::Display,
    {
        let verifier: Verifier = Arc::new(move |head, body, now| {
            let verified = verifier(head, body, now);
            verified.map_err(|error| Problem::webhook_unverified(&error.to_string()))
        });
        let policy = Arc::new((*self.rules.policy).clone().with_key(KeyNeed::Required));
        let rules = Rules { verifier: Some(verifier), policy, ..(*self.rules).clone() };
        Self { rules: Arc::new(rules) }
    }

    /// Asks `authorizer` whether the credentials of the caller still hold, before the caller is answered from a record: a
    /// replay, also one that it has waited for; that its key belongs to another request; that the outcome is unknown; and
    /// [`look_up`](Self::look_up). Default: nobody is asked.
    ///
    /// **A service that authenticates outside of this layer does not need it**, because a revoked caller does not get here:
    /// `Router::new().route(…).layer(once_layer).layer(authentication)`, where axum runs the last layer first. It is
    /// for a layer in front of a service that authenticates by itself, such as a proxy.
    ///
    /// - It is given the head of every guarded request with a key, and its future is polled only where a record would be
    ///   told of. What is executed is not asked about: the inner service judges that itself.
    /// - [`Permission::Unknown`], and a future that is not done within [`Policy::upstream_timeout`], are 502
    ///   `authorization_unknown`, never a replay.
    /// - Answers are not kept: an authorizer that asks over a network keeps good ones for a few seconds itself.
    #[must_use]
    pub fn with_authorizer<F, Fut>(self, authorizer: F) -> Self
    where
        F: Fn(&Parts) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Permission> + Send + 'static,
    {
        let authorizer: Authorizer = Arc::new(move |head| Box::pin(authorizer(head)));
        let rules = Rules { authorizer: Some(authorizer), ..(*self.rules).clone() };
        Self { rules: Arc::new(rules) }
    }

    /// For [`Keep::Location`](crate::policy::Keep::Location): a retry is answered with the stored status and `Location` and
    /// with what a GET of the `Location` gives, sent to the inner service with the headers of the caller that retries. Default:
    /// no; a retry gets status and `Location` alone, and follows it itself.
    ///
    /// **Only for an inner service that tells methods and paths apart**: a proxy, or a whole router inside this layer. A
    /// handler that takes every request for its operation would execute it again with each retry. `Router::layer` of axum wraps
    /// each handler by itself, so wrap the router: `layer.layer(router)`. Below a route of axum, or a router that
    /// strips a prefix, nothing is fetched.
    ///
    /// - Only a `Location` of the host that the client asked is fetched, given as a path or in full.
    /// - 401 and 403 are passed on: a caller that lost the right to see the result does not see it. 404 and 410 are a 410 of
    ///   our own. After every other failure the caller is told to retry with the same key.
    #[must_use]
    pub fn with_locations_fetched(self) -> Self {
        let rules = Rules { fetches_locations: true, ..(*self.rules).clone() };
        Self { rules: Arc::new(rules) }
    }

    /// Names, in a word without spaces, how the inner service passes requests and their keys on. The name is kept with
    /// each operation: an unknown outcome is sent again only if it was sent in the same way, because an upstream that
    /// was given the key in another form would not recognise it. Default: empty. A change holds the outcomes that were
    /// unknown before it.
    #[must_use]
    pub fn with_sent_as(self, sent_as: &str) -> Self {
        let rules = Rules { sent_as: sent_as.replace(' ', "+").into(), ..(*self.rules).clone() };
        Self { rules: Arc::new(rules) }
    }

    /// Whether a request with this head may have a key, and is not guarded only because of how it states its method:
    /// in lower case, or in a header such as `X-HTTP-Method-Override`. This layer answers such a request with 400. A
    /// router that chooses among layers by the method must ask the layer of the overriding method too.
    pub fn slips_by(&self, head: &Parts) -> bool {
        slips_by(&self.rules.policy, head)
    }

    /// Whether a request with this head has a key, may have one in its body, or must have one: what is none of these runs
    /// unguarded.
    pub fn may_have_key(&self, head: &Parts) -> bool {
        may_have_key(&self.rules.policy, head)
    }

    /// The request with its whole body in memory, within the limits of this layer; or the answer to a request that is
    /// beyond them, or ends early.
    ///
    /// # Errors
    /// The answer.
    pub async fn held<B>(&self, request: Request<B>) -> Result<Request<Body>, Response<Body>>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let (policy, room) = (&self.rules.policy, &self.rules.once.inner.room);
        match request::read_whole(policy, room, &head, body).await {
            Ok(body) => Ok(Request::from_parts(head, body.into_body())),
            Err(stop) => Err(self.rules.refused(stop.problem(policy))),
        }
    }

    /// The state of the caller's own operation: the operation that a request with this head would be about. Nothing is
    /// executed and nothing changes.
    ///
    /// `head` must be the head of the operation (its method, path and headers), not that of the request that asks. In
    /// a handler of axum the extensions of the asking request have an `OriginalUri` with the path of the question, and
    /// with it no operation is found: build fresh `Parts`, or remove `OriginalUri` from the extensions.
    ///
    /// The key is found where the policy says, or else in `Idempotency-Key`, because a look-up has no body. With a
    /// [verifier](Self::with_verifier) it is always 404: whoever asks cannot show that the request was its own.
    pub async fn look_up(&self, head: &Parts) -> Response<Body> {
        look_up(&self.rules, head).await
    }

    /// Issues a token: a key for the operation that a request with this head would be about. It is bound to the caller, to
    /// the route and to the scope; nothing is stored. With a header `Idempotency-Context` the same context gets the same
    /// token until the next of the moments at which such tokens change, every half of the ttl. 404 where [`Policy::with_tokens`] is off, for a method that is not guarded, and
    /// without [`OnceBuilder::with_secret`](crate::once::OnceBuilder::with_secret).
    ///
    /// `head` must be the head of the operation, not that of the request that asks: see [`look_up`](Self::look_up).
    pub fn issue_token(&self, head: &Parts) -> Response<Body> {
        token::issue(&self.rules, head)
    }
}

/// Makes any service a [`Guarded`] one. See [`Once::layer`].
#[derive(Clone, Debug)]
pub struct OnceLayer {
    rules: Arc<Rules>,
}

impl<S> Layer<S> for OnceLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        // A copy: services on different threads would contend for one reference count.
        Guarded { rules: Arc::new((*self.rules).clone()), inner }
    }
}

/// The rules of one layer, and the engine that runs its operations.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) once: Once,
    pub(super) identify: Arc<dyn Fn(&Parts) -> Who + Send + Sync>,
    pub(super) policy: Arc<Policy>,
    pub(super) counters: Arc<Counters>,
    /// The response that `recovery = "fail"` stores, the same for every request.
    pub(super) failure: Arc<record::Response>,
    /// How requests are passed on: see `OnceLayer::with_sent_as`.
    pub(super) sent_as: Arc<str>,
    pub(super) reconciler: Option<Arc<dyn Reconciler>>,
    verifier: Option<Verifier>,
    authorizer: Option<Authorizer>,
    /// Whether a GET may be sent to the inner service: see `OnceLayer::with_locations_fetched`.
    pub(super) fetches_locations: bool,
}

type Authorizer = Arc<dyn Fn(&Parts) -> Asked + Send + Sync>;
type Verifier = Arc<dyn Fn(&Parts, &[u8], StoreTime) -> Result<(), Problem> + Send + Sync>;

impl Rules {
    /// The answer to a request that is refused before any claim.
    pub(super) fn refused(&self, problem: Problem) -> Response<Body> {
        self.counters.refused.one();
        problem.response(&self.policy)
    }

    /// Takes note of how long a request took that came at `asked_at`, on this node's clock.
    pub(super) fn took(&self, asked_at: Duration) {
        let took = self.once.inner.clock.boot().saturating_sub(asked_at);
        self.counters.request.record(took);
    }

    /// By when the client needs its answer, if its request came at `asked_at`.
    pub(super) fn ends_at(&self, head: &Parts, asked_at: Duration) -> Option<Duration> {
        let wall = self.once.inner.clock.wall();
        let left = deadline::left(self.policy.deadline_from(), &head.headers, wall)?;
        Some(asked_at.saturating_add(left))
    }

    /// The caller; and the refusal of a free key, if this key may not begin an operation.
    pub(super) fn admit(
        &self,
        head: &Parts,
        key: &Key,
    ) -> Result<(Principal, Option<Refusal>), Problem> {
        let who = self.identify(head)?;
        let expired = token::judge(self, head, &who, key)?;
        let too_old = || self.is_too_old(head, key).then_some(Refusal::KeyExpired);
        Ok((who, expired.or_else(too_old)))
    }

    /// Whether the answer to this key may have expired, and the policy refuses such keys.
    fn is_too_old(&self, head: &Parts, key: &Key) -> bool {
        let first_used = match self.policy.old_keys() {
            OldKeys::Refuse => key_age::first_used(key, &head.headers),
            OldKeys::Run if repeatability::is_spoken(&self.policy) => {
                key_age::first_sent(&head.headers)
            }
            OldKeys::Run => None,
        };
        let age_ms = |first_used| self.latest().since_ms(first_used);
        let old_ms = as_ms(self.policy.ttl().saturating_sub(self.margin()));
        first_used.is_some_and(|first_used| age_ms(first_used) >= old_ms)
    }

    /// The latest that it may be. Answers expire by the time of the store, of which the clock of this node knows nothing.
    pub(super) fn latest(&self) -> StoreTime {
        let wall = self.once.inner.clock.wall();
        self.once.inner.store.time().now().map_or(wall, |store| store.max(wall))
    }

    /// The earliest that it may be.
    pub(super) fn earliest(&self) -> StoreTime {
        let wall = self.once.inner.clock.wall();
        self.once.inner.store.time().now().map_or(wall, |store| store.min(wall))
    }

    /// How long before its answer a key is taken to have expired, where the key itself tells its age: by so much the clocks
    /// of two nodes, or of a client and a node, may differ.
    pub(super) fn margin(&self) -> Duration {
        MARGIN_MAX.min(self.policy.ttl() / MARGIN_PART)
    }

    /// The question whether the caller may be told of its operation, not asked yet.
    pub(super) fn permission(&self, head: &Parts) -> Option<Asked> {
        self.authorizer.as_ref().map(|ask| ask(head))
    }

    pub(super) fn has_verifier(&self) -> bool {
        self.verifier.is_some()
    }

    /// Whether the request is genuine, where the layer has a verifier.
    pub(super) fn verify(&self, head: &Parts, body: &Whole) -> Result<(), Problem> {
        match &self.verifier {
            Some(verify) => verify(head, &body.bytes, self.once.inner.clock.wall()),
            None => Ok(()),
        }
    }

    pub(super) fn identify(&self, head: &Parts) -> Result<Principal, Problem> {
        (self.identify)(head).principal()
    }
}

const MARGIN_MAX: Duration = Duration::from_secs(60);
/// Of a short ttl, a tenth.
const MARGIN_PART: u32 = 10;

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A service whose keyed requests run at most once. See [`Once::layer`].
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    rules: Arc<Rules>,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // `poll_ready` was called on this service, not on its clone: call this one, and keep the clone.
        let unready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, unready);
        let story = Story { rules: self.rules.clone(), inner };
        if grpc::is_grpc(request.headers()) {
            return Box::pin(story.tell(request).map_ok(grpc::readable));
        }
        match repeatability::judge(&self.rules.policy, request.method(), request.headers()) {
            Judged::Other => Box::pin(story.tell(request)),
            Judged::Repeatable => Box::pin(story.tell(request).map_ok(repeatability::with_result)),
            Judged::Refused(problem) => {
                let refused = repeatability::with_result(self.rules.refused(problem));
                Box::pin(std::future::ready(Ok(refused)))
            }
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use super::*;
    use crate::once::{Finding, Question};
    use crate::store::memory::MemoryStore;

    struct Knows;

    impl Reconciler for Knows {
        fn ask<'a>(
            &'a self,
            _: Question<'a>,
        ) -> Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
            Box::pin(async { Finding::Unclear })
        }

        fn asks_by_itself(&self) -> bool {
            true
        }
    }

    // A record has the name of its route: it does not say which of two layers sent the request.
    #[test]
    fn of_two_layers_with_one_name_neither_is_asked_in_the_background() {
        let once = Once::new(MemoryStore::new());
        let layer = |policy: Policy| {
            once.layer(|_: &Parts| None::<Principal>, policy).with_reconciler(Knows)
        };
        layer(Policy::payments());
        assert!(once.inner.background_reconciler("payments").is_some());
        layer(Policy::payments().with_route("refunds"));
        assert!(once.inner.background_reconciler("payments").is_some());
        assert!(once.inner.background_reconciler("refunds").is_some());
        layer(Policy::payments());
        assert!(once.inner.background_reconciler("payments").is_none());
    }

    #[test]
    fn a_layer_that_replaces_another_of_its_name_is_asked_in_its_place() {
        let once = Once::new(MemoryStore::new());
        let layer = |policy: Policy| {
            once.layer(|_: &Parts| None::<Principal>, policy).with_reconciler(Knows)
        };
        layer(Policy::payments());
        once.replace_layers();
        assert!(once.inner.background_reconciler("payments").is_some(), "there is no gap");
        let replaced = Policy::payments().with_upstream_timeout(Duration::from_secs(7));
        layer(replaced.clone());
        let (asked, _) = once.inner.background_reconciler("payments").unwrap();
        assert_eq!(asked.upstream_timeout(), replaced.upstream_timeout());
    }
}
