//! Finds the route of a request, and answers what the gateway knows by itself.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use onlyonce::fingerprint::{METHOD_OVERRIDES, overrides_method};
use onlyonce::http::{Body, Guarded, OnceLayer, grpc, problem};
use onlyonce::policy::{Mode, Tokens};
use onlyonce::store::BoxError;
use onlyonce::{Once, Policy};
use tokio_rustls::TlsAcceptor;
use tower_layer::Layer;
use tower_service::Service as _;

use super::ambiguity::{self, Judged};
use super::authorize::Authorizer;
use super::connection_state::InFlight;
use super::cors::{self, Cors};
use super::current::Current;
use super::forward::{Client, Forward};
use super::forwarded_key::ForwardedKey;
use super::headers;
use super::jwt::Jwt;
use super::outgoing::Outgoing;
use super::principal::identify;
use super::reconcile::Asker;
use super::unbroken::Unbroken;
use super::upstream::Upstream;
use super::well_known;
use crate::config::{Config, Match, Route};
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
        let (version, state) = (request.version(), in_flight.connection());
        if version == Version::HTTP_2 {
            headers::join_cookie_crumbs(request.headers_mut());
        }
        if request.method() == Method::CONNECT {
            return Ok(problem::method_not_allowed(&Policy::default()));
        }
        routes.learn_keys(&request).await;
        if request.method() == Method::GET
            && request.uri().path().starts_with(problem::WELL_KNOWN)
            && let Some(answer) = Box::pin(routes.well_known(&request)).await
        {
            return Ok(routes.outgoing.held(answer, &Policy::default(), state, version));
        }
        if routes.issues_token(&request) {
            let answer = routes.issue_token(&request);
            return Ok(routes.outgoing.held(answer, &Policy::default(), state, version));
        }
        let guard = routes.route(request.method(), request.uri().path());
        let allowed = guard.cors.allowed(request.headers());
        let refusal = routes.overriding(&request);
        let answer = match refusal.or_else(|| guard.refusal(request.uri(), request.headers())) {
            Some(refusal) if grpc::is_grpc(request.headers()) => grpc::readable(refusal),
            Some(refusal) => refusal,
            None => guard.pass(request).await,
        };
        let answer = routes.outgoing.held(answer, &guard.policy, state, version);
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
        let (routes, outgoing) = (routes.collect(), outgoing.clone());
        Self {
            routes,
            services,
            jwt,
            outgoing,
            description: well_known::description(config).into(),
        }
    }

    /// Fetches the keys of bearer tokens anew, if the request is judged by its token and names a key that is not known.
    async fn learn_keys(&self, request: &Request<Incoming>) {
        let Some(jwt) = &self.jwt else { return };
        let (method, uri) = (request.method(), request.uri());
        let is_look_up = method == Method::GET && uri.path().starts_with(problem::WELL_KNOWN);
        let asked = match is_look_up || self.issues_token(request) {
            true => well_known::asked(uri),
            false => Some((method.clone(), uri.clone())),
        };
        // Nobody waits for an issuer whose token is not looked at.
        if asked.is_some_and(|(method, uri)| self.route(&method, uri.path()).judges_tokens(&method))
        {
            jwt.learn(request.headers()).await;
        }
    }

    /// The description of the routes, or the state of one's own operation.
    async fn well_known(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        match &request.uri().path()[problem::WELL_KNOWN.len()..] {
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
        let refusal = guard.refusal(request.uri(), request.headers());
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
        let request = request.map(|body| Unbroken::new(body, version));
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
        if let Some(refusal) = self.refusal(request.uri(), request.headers()) {
            return refusal;
        }
        self.layer.look_up(&head_of(request, (method, uri))).await
    }

    /// The answer to a request that the upstream could read differently; a route that observes refuses nothing.
    fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<Response<Body>> {
        if self.policy.mode() == Mode::Observe {
            return None;
        }
        let why = ambiguity::doubt(uri, headers, &self.judged)?;
        Some(problem::request_ambiguous(&self.policy, why))
    }
}

impl Routes {
    /// The route of a request. `post` goes the way of `POST`, so that a keyed one is noticed and refused.
    fn route(&self, method: &Method, path: &str) -> &Guard {
        let name = method.as_str();
        if name.bytes().any(|byte| byte.is_ascii_lowercase())
            && let Ok(upper) = Method::from_bytes(name.to_ascii_uppercase().as_bytes())
        {
            return self.route(&upper, path);
        }
        let found = self.routes.iter().find(|guard| guard.matching.matches(method, path));
        found.or_else(|| self.routes.last()).expect("the last route matches everything")
    }

    /// The refusal of a route whose method a header puts in the place of the request's own.
    fn overriding(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        if !overrides_method(request.headers()) {
            return None;
        }
        let names = METHOD_OVERRIDES.into_iter().flat_map(|name| request.headers().get_all(name));
        // A client may send very many: each route is judged once.
        let mut guards: Vec<&Guard> = Vec::new();
        for name in names {
            let name = name.as_bytes().trim_ascii().to_ascii_uppercase();
            let Ok(method) = Method::from_bytes(&name) else { continue };
            let guard = self.route(&method, request.uri().path());
            let methods = guard.policy.methods();
            let is_other = methods.contains(&method) && !methods.contains(request.method());
            if is_other && !guards.iter().any(|judged| std::ptr::eq(*judged, guard)) {
                guards.push(guard);
            }
        }
        if guards.is_empty() {
            return None;
        }
        let (mut head, ()) = Request::new(()).into_parts();
        (head.method, head.uri) = (request.method().clone(), request.uri().clone());
        head.headers = request.headers().clone();
        let guard = guards.into_iter().find(|guard| guard.layer.slips_by(&head))?;
        Some(problem::method_unclear(&guard.policy))
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
    let (rule, anonymous) = (route.principal.clone(), route.anonymous);
    let peers = route.trusted_peers.clone();
    let who = move |head: &_| identify(&rule, &peers, anonymous, jwt.as_deref(), head);
    let layer = once.layer(who, route.policy.clone());
    let sent_as = ForwardedKey::of(route).word(uri).replace(' ', "+");
    let mut layer = layer.with_sent_as(&sent_as).with_locations_fetched();
    if let Some(verifier) = route.webhook.clone() {
        layer = layer.with_verifier(move |head, body, now| verifier.verify(head, body, now));
    }
    if let Some(rule) = route.authorize.clone() {
        let answer_max = route.policy.upstream_timeout();
        let asker = Authorizer::new(rule, &route.principal, upstream.clone(), answer_max);
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
        cors: Cors::new(&route.cors),
        layer: layer.clone(),
        service,
    }
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

/// What [`App::answer`] returns.
pub(super) type Answering =
    Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;
