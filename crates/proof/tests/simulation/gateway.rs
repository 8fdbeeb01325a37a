//! A gateway: the library's own layer and engine, between hyper and the service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use onlyonce::http::{Body, NotSent};
use onlyonce::policy::{InFlight, Recovery};
use onlyonce::scope::Principal;
use onlyonce::store::BoxError;
use onlyonce::{Limits, Once, Policy};
use tower_layer::Layer;
use tower_service::Service;
use turmoil::net::{TcpListener, TcpStream};

use crate::link::Link;
use crate::plan::{LEASE, UPSTREAM_TIMEOUT};
use crate::store::ModelStore;
use crate::world::{ANY, NodeClock, World};

pub(crate) async fn serve(
    world: Arc<World>,
    store: Arc<ModelStore>,
    node: usize,
) -> turmoil::Result {
    let link = Link::open(world.clone(), store, node).await?;
    let wall_off_ms = [-700, 1_300][node];
    let limits = Limits::default().with_sweep(SWEEP_EVERY, 100);
    let clock = NodeClock { world: world.clone(), wall_off_ms };
    let (once, background) =
        Once::builder(link).with_clock(clock).with_limits(limits).build_driven();
    world.told().engines.push(once.clone());
    let background =
        Standing { world: world.clone(), node, work: Box::pin(background), wait: None };
    tokio::task::spawn_local(background);
    let forward = Forward { world: world.clone(), node };
    let guarded = |route| {
        let layer = once.layer(principal, policy(&world, route));
        layer.layer(forward.clone())
    };
    let (charges, orders) = (guarded(CHARGES), guarded(ORDERS));
    let listener = TcpListener::bind((ANY, HTTP)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (charges, orders, world) = (charges.clone(), orders.clone(), world.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let mut guarded = match request.uri().path() {
                ORDERS => orders.clone(),
                _ => charges.clone(),
            };
            let world = world.clone();
            async move {
                world.runs(node).await;
                let answer = guarded.call(request).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|error| bad_gateway(&error)))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .auto_date_header(false)
            .keep_alive(false)
            .header_read_timeout(None::<Duration>)
            .serve_connection(TokioIo::new(stream), service);
        tokio::task::spawn_local(async move {
            // A client that hung up.
            let _ = connection.await;
        });
    }
}

fn policy(world: &World, route: &str) -> Policy {
    let policy = Policy::default()
        .with_route(route)
        .with_lease(LEASE)
        .with_upstream_timeout(UPSTREAM_TIMEOUT)
        .with_ttl(world.plan.ttl());
    let policy = match world.plan.waits {
        true => policy.with_in_flight(InFlight::Wait(Duration::from_secs(3))),
        false => policy,
    };
    match route {
        ORDERS => policy.with_recovery(Recovery::Redrive { within: world.plan.ttl() / 2 }),
        _ => policy,
    }
}

fn principal(head: &Parts) -> Option<Principal> {
    head.headers.get(PRINCIPAL).map(|name| Principal::of("name", name.as_bytes()))
}

fn bad_gateway(error: &BoxError) -> Response<Body> {
    let body = Body::new(Full::new(Bytes::from(error.to_string())));
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
    response
}

/// The background work, which stands still with its gateway.
struct Standing<F> {
    world: Arc<World>,
    node: usize,
    work: Pin<Box<F>>,
    wait: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<F: Future<Output = ()>> Future for Standing<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(left) = self.world.stands_for(self.node) {
            let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
            std::task::ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        self.wait = None;
        self.work.as_mut().poll(cx)
    }
}

/// Passes a request on to the service.
#[derive(Clone)]
struct Forward {
    world: Arc<World>,
    node: usize,
}

impl Service<Request<Body>> for Forward {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            this.world.runs(this.node).await;
            match TcpStream::connect(("service", HTTP)).await {
                Ok(stream) => exchange(stream, request).await,
                Err(_) => {
                    let mut response = Response::new(Full::default());
                    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                    response.extensions_mut().insert(NotSent);
                    Ok(response)
                }
            }
        })
    }
}

/// Sends the request on a connection of its own, and reads the whole answer.
pub(crate) async fn exchange<B>(
    stream: TcpStream,
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, BoxError>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    let exchanging = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response::from_parts(head, Full::new(body)))
    };
    // The connection is driven by its caller, so that both end together.
    let connection = std::pin::pin!(connection);
    let exchanging = std::pin::pin!(exchanging);
    match futures_util::future::select(exchanging, connection).await {
        futures_util::future::Either::Left((answer, _)) => answer,
        futures_util::future::Either::Right((_, exchanging)) => exchanging.await,
    }
}

pub(crate) const HTTP: u16 = 80;
pub(crate) const PRINCIPAL: &str = "x-principal";
/// A route whose service does not know keys: an unknown outcome is held.
pub(crate) const CHARGES: &str = "/charges";
/// A route whose service removes duplicates by key: an unknown outcome is sent again.
pub(crate) const ORDERS: &str = "/orders";
const SWEEP_EVERY: Duration = Duration::from_secs(4);
