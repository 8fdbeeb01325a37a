//! Finds the route of a request, and answers what the gateway knows by itself.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use onlyonce::code::WELL_KNOWN;
use onlyonce::fingerprint::overrides_method;
use onlyonce::http::{Body, Guarded, OnceLayer, Overrides, grpc, problem};
use onlyonce::policy::{Mode, Tokens};
use onlyonce::scope::{is_settled_path, readings};
use onlyonce::store::BoxError;
use onlyonce::{Once, Policy};
use tokio_rustls::TlsAcceptor;
use tower_layer::Layer;
use tower_service::Service as _;

use super::ambiguity::{self, Judged};
use super::authorize::Authorizer;
use super::cors::{self, Cors};
use super::current::Current;
use super::forward::{Client, Forward};
use super::forwarded_key::ForwardedKey;
use super::headers;
use super::jwt::{Jwt, KeyNotFetched};
use super::outgoing::Outgoing;
use super::principal::Callers;
use super::reconcile::Asker;
use super::spellings::{Demands, is_passed_by};
use super::unbroken::Unbroken;
use super::upstream::Upstream;
use super::well_known;
use crate::config::{Config, Match, Route};
use crate::connections::InFlight;
use crate::tls::Outward;

/// The routes of one thread, as they are now.
#[derive(Clone, Debug)]
pub(super) struct App {
    thread: usize,
    current: Current,
}

/// The routes of one thread, by one configuration.
#[derive(Debug)]
pub(super) struct Routes {
    /// In the order of the configuration; the last one matches everything.
    routes: Vec<Guard>,
    /// Every method that a route guards.
    guarded: Vec<Method>,
    /// Whether each path that has no other spelling is for one route alone.
    are_settled: bool,
    /// The services of the routes, in their order.
    pub(super) services: Vec<Service>,
    /// Verifies bearer tokens.
    jwt: Option<Arc<Jwt>>,
    outgoing: Outgoing,
    description: bytes::Bytes,
}

/// The address of a service, and its connections.
pub(super) type Service = (Uri, Arc<Upstream>);

#[derive(Debug)]
struct Guard {
    matching: Match,
    policy: Policy,
    needs_jwt: bool,
    judged: Judged,
    demands: Demands,
    cors: Cors,
    layer: OnceLayer,
    service: Guarded<Forward>,
}

impl App {
    /// The routes of this thread, of all that there are.
    pub(super) fn new(thread: usize, current: Current) -> Self {
        Self { thread, current }
    }

    /// What accepts connections by TLS, as it is now.
    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.current.now().secured.listener.clone()
    }

    /// A request goes its whole way by the routes that were in force when it came.
    pub(super) async fn answer(
        self,
        mut request: Request<Incoming>,
        in_flight: InFlight,
    ) -> Result<Response<Body>, Infallible> {
        let routes = self.current.routes(self.thread);
        let version = request.version();
        if version == Version::HTTP_2 {
            headers::join_cookie_crumbs(request.headers_mut());
        }
        if request.method() == Method::CONNECT {
            return Ok(problem::method_not_allowed(&Policy::default()));
        }
        routes.learn_keys(&mut request).await;
        if request.method() == Method::GET
            && request.uri().path().starts_with(WELL_KNOWN)
            && let Some(answer) = Box::pin(routes.well_known(&request)).await
        {
            return Ok(routes.outgoing.held(answer, &Policy::default(), in_flight, version));
        }
        if routes.issues_token(&request) {
            let answer = routes.issue_token(&request);
            return Ok(routes.outgoing.held(answer, &Policy::default(), in_flight, version));
        }
        let guard = routes.route(request.method(), request.uri().path());
        let allowed = guard.cors.allowed(request.headers());
        let refusal = routes.overriding(&request).or_else(|| routes.respelled(&request, guard));
        let refusal =
            refusal.or_else(|| guard.refusal(request.method(), request.uri(), request.headers()));
        let answer = match refusal {
            Some(refusal) if grpc::is_grpc(request.headers()) => grpc::readable(refusal),
            Some(refusal) => refusal,
            None if routes.may_override_in_form(&request) => {
                Box::pin(routes.pass_form(request, guard)).await
            }
            None => guard.pass(request).await,
        };
        let answer = routes.outgoing.held(answer, &guard.policy, in_flight, version);
        Ok(cors::readable(answer, allowed))
    }
}

impl Routes {
    /// Every route has its layer, one for all threads, and every service the connections of this thread.
    pub(super) fn new(
        config: &Config,
        layers: &[OnceLayer],
        services: Vec<Service>,
        jwt: Option<Arc<Jwt>>,
        outgoing: &Outgoing,
    ) -> Self {
        let routes = routes(config).zip(layers).zip(&services);
        let routes = routes.map(|((route, layer), (_, upstream))| guard(route, layer, upstream));
        let (routes, outgoing): (Vec<Guard>, _) = (routes.collect(), outgoing.clone());
        let mut guarded: Vec<_> =
            routes.iter().flat_map(|guard| guard.policy.methods()).cloned().collect();
        guarded.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        guarded.dedup();
        Self {
            are_settled: routes.iter().all(|guard| guard.matching.is_settled()),
            guarded,
            routes,
            services,
            jwt,
            outgoing,
            description: well_known::description(config).into(),
        }
    }

    /// Looks for the key of the request's bearer token, if the request is judged by it and the key is not known.
    async fn learn_keys(&self, request: &mut Request<Incoming>) {
        let Some(jwt) = &self.jwt else { return };
        let (method, uri) = (request.method(), request.uri());
        let is_look_up = method == Method::GET && uri.path().starts_with(WELL_KNOWN);
        let asked = match is_look_up || self.issues_token(request) {
            true => well_known::asked(uri),
            false => Some((method.clone(), uri.clone())),
        };
        // Nobody waits for an issuer whose token is not looked at.
        let is_judged = asked
            .is_some_and(|(method, uri)| self.route(&method, uri.path()).judges_tokens(&method));
        if is_judged && !jwt.learn(request.headers()).await {
            request.extensions_mut().insert(KeyNotFetched);
        }
    }

    /// The description of the routes, or the state of one's own operation.
    async fn well_known(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        match &request.uri().path()[WELL_KNOWN.len()..] {
            "" => Some(json(StatusCode::OK, self.description.clone())),
            "/operation" => Some(self.look_up(request).await),
            _ => None,
        }
    }

    async fn look_up(&self, request: &Request<Incoming>) -> Response<Body> {
        let Some((method, uri)) = well_known::asked(request.uri()) else {
            return json(StatusCode::BAD_REQUEST, well_known::USAGE.into());
        };
        let guard = self.route(&method, uri.path());
        let answer = guard.look_up(request, (method, uri)).await;
        cors::readable(answer, guard.cors.allowed(request.headers()))
    }

    /// Whether the request asks for a token. Where no route has tokens, the path is the service's own.
    fn issues_token(&self, request: &Request<Incoming>) -> bool {
        request.method() == Method::POST
            && request.uri().path() == well_known::TOKENS
            && self.routes.iter().any(|guard| guard.policy.tokens() != Tokens::Off)
    }

    fn issue_token(&self, request: &Request<Incoming>) -> Response<Body> {
        let Some((method, uri)) = well_known::asked(request.uri()) else {
            return json(StatusCode::BAD_REQUEST, well_known::TOKENS_USAGE.into());
        };
        let guard = self.route(&method, uri.path());
        let refusal = guard.refusal(&method, request.uri(), request.headers());
        let issue = || guard.layer.issue_token(&head_of(request, (method, uri)));
        let answer = refusal.unwrap_or_else(issue);
        cors::readable(answer, guard.cors.allowed(request.headers()))
    }
}

impl Guard {
    /// Whether a request with this method may be judged by its bearer token.
    fn judges_tokens(&self, method: &Method) -> bool {
        self.needs_jwt && self.policy.methods().contains(method)
    }

    /// Passes the request to the layer.
    fn pass(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> {
        let version = request.version();
        self.pass_whole(request.map(|body| Unbroken::new(body, version)))
    }

    fn pass_whole<B>(&self, request: Request<B>) -> impl Future<Output = Response<Body>>
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let answering = self.service.clone().call(request);
        // Only a guarded request fails, and the layer has an answer to that.
        answering.map(|answer| answer.unwrap_or_else(|_| problem::upstream_failed(&self.policy)))
    }

    /// The state of the operation that a request with this method and address would be about.
    async fn look_up(
        &self,
        request: &Request<Incoming>,
        (method, uri): (Method, Uri),
    ) -> Response<Body> {
        if let Some(refusal) = self.refusal(&method, request.uri(), request.headers()) {
            return refusal;
        }
        self.layer.look_up(&head_of(request, (method, uri))).await
    }

    /// The answer to a request that the upstream could read differently; a route that observes refuses only what has no
    /// certain end.
    fn refusal(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response<Body>> {
        let is_guarded = self.policy.methods().contains(method);
        let why = match self.policy.mode() {
            Mode::Observe => ambiguity::length_doubt(headers)?,
            Mode::Enforce => ambiguity::doubt(uri, headers, &self.judged, is_guarded)?,
        };
        Some(problem::request_ambiguous(&self.policy, why))
    }

    /// Whether a request with this method that goes by `self` must not be one of `other` as well.
    fn passes_by(&self, other: &Self, method: &Method) -> bool {
        let [mine, others] = [self, other].map(|guard| (&guard.policy, &guard.demands));
        !std::ptr::eq(self, other) && is_passed_by(method, mine, others)
    }
}

impl Routes {
    /// The route of a request. `post` goes the way of `POST`, so that a keyed one is noticed and refused.
    fn route(&self, method: &Method, path: &str) -> &Guard {
        let method = &upper(method);
        let found = self.routes.iter().find(|guard| guard.matching.matches(method, path));
        found.or_else(|| self.routes.last()).expect("the last route matches everything")
    }

    /// The refusal of another route, under which the request would fall where a service reads its path in another way.
    fn respelled(&self, request: &Request<Incoming>, guard: &Guard) -> Option<Response<Body>> {
        let other = self.rival(request.method(), request.uri().path(), guard)?;
        Some(problem::request_ambiguous(&other.policy, OTHER_ROUTE))
    }

    /// Another route that the request would pass by if it went by `guard`, and under which its path falls as some services
    /// read it.
    fn rival(&self, method: &Method, path: &str, guard: &Guard) -> Option<&Guard> {
        let method = &upper(method);
        let is_alone = self.routes.len() == 1 || !self.guarded.contains(method);
        if is_alone || (self.are_settled && is_settled_path(path)) {
            return None;
        }
        let is_rival = |other: &&Guard| guard.passes_by(other, method);
        let Some(readings) = readings(path) else {
            return self.routes.iter().find(is_rival);
        };
        readings.iter().find_map(|path| {
            let as_written = |other: &&Guard| {
                let spelled = other.matching.spelled(path);
                spelled.is_some_and(|path| std::ptr::eq(self.route(method, &path), *other))
            };
            let exact = Some(self.route(method, path)).filter(is_rival);
            exact.or_else(|| self.routes.iter().filter(is_rival).find(as_written))
        })
    }

    /// The refusal of a route whose method stands in for the request's own: in a header, or in the query.
    fn overriding(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        if !overrides_method(request.headers()) && request.uri().query().is_none() {
            return None;
        }
        let overrides = Overrides::of(request.uri(), request.headers());
        match overrides.is_empty() {
            true => None,
            false => self.overridden(&head_as_sent(request), &overrides),
        }
    }

    /// The same, for the methods that these `overrides` name.
    fn overridden(&self, head: &Parts, overrides: &Overrides) -> Option<Response<Body>> {
        let guards = self.overridden_guards(&head.method, head.uri.path(), overrides);
        let guard = guards.into_iter().find(|guard| guard.layer.may_have_key(head))?;
        Some(problem::method_unclear(&guard.policy))
    }

    /// The routes that guard a method which stands in for this one, and that a request with this one would pass by.
    fn overridden_guards(&self, method: &Method, path: &str, overrides: &Overrides) -> Vec<&Guard> {
        let own = self.route(method, path);
        let named = overrides.names.iter().map(|name| name.to_ascii_uppercase());
        let methods: Vec<Method> = match overrides.is_unclear {
            true => self.guarded.clone(),
            false => named.filter_map(|name| Method::from_bytes(&name).ok()).collect(),
        };
        // A client may name very many: each route is judged once.
        let mut guards: Vec<&Guard> = Vec::new();
        for other in methods.iter().filter(|other| *other != method) {
            let guard = self.route(other, path);
            let rival = self.rival(other, path, own);
            let methods = guard.policy.methods();
            let is_passed_by = methods.contains(other)
                && guard.policy.mode() == Mode::Enforce
                && (!methods.contains(method) || own.passes_by(guard, other));
            for guard in rival.into_iter().chain(is_passed_by.then_some(guard)) {
                if !guards.iter().any(|judged| std::ptr::eq(*judged, guard)) {
                    guards.push(guard);
                }
            }
        }
        guards
    }

    /// Whether a field of the request's form could stand in for its method, and lead by a route that guards that method.
    fn may_override_in_form(&self, request: &Request<Incoming>) -> bool {
        let (method, path) = (request.method(), request.uri().path());
        let is_form =
            method == Method::POST && self.guarded.len() > 1 && has_form(request.headers());
        let any = Overrides { is_unclear: true, ..Overrides::default() };
        is_form && {
            let head = head_as_sent(request);
            let guards = self.overridden_guards(method, path, &any);
            guards.iter().any(|guard| guard.layer.may_have_key(&head))
        }
    }

    /// Reads the form of a request to see whether a field stands in for its method, then passes it on.
    async fn pass_form(&self, request: Request<Incoming>, guard: &Guard) -> Response<Body> {
        let version = request.version();
        let request = request.map(|body| Unbroken::new(body, version));
        let request = match guard.layer.held(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        let head = head_as_sent(&request);
        let form = request.body().held().map_or(&[][..], |body| body);
        match self.overridden(&head, &Overrides::of_form(&head, form)) {
            Some(refusal) => refusal,
            None => guard.pass_whole(request).await,
        }
    }
}

/// The layers of all routes, in their order. The services are those that are asked about outcomes and callers.
pub(super) fn layers(
    config: &Config,
    once: &Once,
    jwt: Option<&Arc<Jwt>>,
    services: &[Service],
) -> Vec<OnceLayer> {
    let routes = routes(config).zip(services);
    routes.map(|(route, service)| layer(route, service, once, jwt.cloned())).collect()
}

/// The service of each route, in their order. Those of one address share their connections, also with services that
/// there were `before`, unless TLS is spoken in another way now.
pub(super) fn services(
    config: &Config,
    outward: &Outward,
    before: &[Service],
) -> Result<Vec<Service>, BoxError> {
    let mut services: Vec<Service> = Vec::new();
    for route in routes(config) {
        let uri = upstream_of(route, config)?;
        let is_same = |(other, upstream): &&Service| other == uri && upstream.speaks(outward);
        let same = services.iter().chain(before).find(is_same);
        let upstream = match same {
            Some((_, upstream)) => upstream.clone(),
            None => Arc::new(Upstream::new(uri, outward)?),
        };
        services.push((uri.clone(), upstream));
    }
    Ok(services)
}

/// Those of the configuration, then the one for everything else.
fn routes(config: &Config) -> impl Iterator<Item = &Route> {
    config.routes.iter().chain([&config.fallback])
}

fn layer(
    route: &Route,
    (uri, upstream): &Service,
    once: &Once,
    jwt: Option<Arc<Jwt>>,
) -> OnceLayer {
    let callers = Callers::of(route, jwt);
    let layer = once.layer(move |head| callers.identify(head), route.policy.clone());
    let sent_as = ForwardedKey::of(route).word(uri).replace(' ', "+");
    let mut layer = layer.with_sent_as(&sent_as).with_locations_fetched();
    if let Some(verifier) = route.webhook.clone() {
        layer = layer.with_verifier(move |head, body, now| verifier.verify(head, body, now));
    }
    if let Some(rule) = route.authorize.clone() {
        let answer_max = route.policy.upstream_timeout();
        let asker = Authorizer::new(rule, route, upstream.clone(), answer_max);
        layer = layer.with_authorizer(move |head| asker.ask(head));
    }
    match &route.reconcile {
        Some(rule) => {
            layer.with_reconciler(Asker::new(route, rule.clone(), upstream.clone(), &sent_as))
        }
        None => layer,
    }
}

fn upstream_of<'a>(route: &'a Route, config: &'a Config) -> Result<&'a Uri, BoxError> {
    let upstream = route.upstream.as_ref().or(config.upstream.as_ref());
    Ok(upstream.ok_or("no upstream: give one with --upstream, or set `upstream`")?.uri())
}

fn guard(route: &Route, layer: &OnceLayer, upstream: &Arc<Upstream>) -> Guard {
    let service = layer.layer(Forward::new(upstream.clone(), route));
    Guard {
        matching: route.matching.clone(),
        policy: route.policy.clone(),
        needs_jwt: route.principal.needs_jwt(),
        judged: Judged::by(route),
        demands: Demands::of(route),
        cors: Cors::new(&route.cors),
        layer: layer.clone(),
        service,
    }
}

/// The method as services read it that take `post` for `POST`.
fn upper(method: &Method) -> Cow<'_, Method> {
    let name = method.as_str();
    let upper =
        name.bytes().any(|byte| byte.is_ascii_lowercase()).then(|| name.to_ascii_uppercase());
    let upper = upper.and_then(|name| Method::from_bytes(name.as_bytes()).ok());
    upper.map_or(Cow::Borrowed(method), Cow::Owned)
}

/// A copy of the head of a request.
fn head_as_sent<B>(request: &Request<B>) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    (head.method, head.uri) = (request.method().clone(), request.uri().clone());
    head.headers = request.headers().clone();
    head
}

/// Whether the body is a form, url-encoded or in parts.
fn has_form(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let is_named = |name: &&[u8]| {
        let start = media_type.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    FORMS.iter().any(is_named)
}

/// The head of the operation that a request asks about.
fn head_of(request: &Request<Incoming>, (method, uri): (Method, Uri)) -> Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.headers = request.headers().clone();
    (head.method, head.uri) = (method, with_host(uri, request.uri()));
    // Its address and its certificate may tell who asks.
    if let Some(client) = request.extensions().get::<Arc<Client>>() {
        head.extensions.insert(client.clone());
    }
    if let Some(not_fetched) = request.extensions().get::<KeyNotFetched>() {
        head.extensions.insert(*not_fetched);
    }
    head
}

/// The look-up of an HTTP/2 client has its host in the request's own address.
fn with_host(uri: Uri, request: &Uri) -> Uri {
    let mut parts = uri.into_parts();
    parts.scheme = request.scheme().cloned();
    parts.authority = request.authority().cloned();
    Uri::from_parts(parts).unwrap_or_default()
}

fn json(status: StatusCode, body: bytes::Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

const FORMS: [&[u8]; 2] = [b"application/x-www-form-urlencoded", b"multipart/"];
const OTHER_ROUTE: &str = "The path of the request can be read as one for another route, which has rules of its own (slashes \
                           merged, dot segments resolved, percent-encoding decoded, parameters, an extension or a final slash \
                           left out, letter case). Send the path as that route has it.";
/// What [`App::answer`] returns.
pub(super) type Answering =
    Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
