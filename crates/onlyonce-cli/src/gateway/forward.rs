//! Passes a request on, and says whether it may have been received.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Body as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onlyonce::http::{Body, UntilClose, problem};
use onlyonce::key::Key;
use onlyonce::planted::{Planted, planted};
use onlyonce::policy::{Policy, VIA};
use onlyonce::store::BoxError;
use onlyonce::{Attempt, http::IDEMPOTENCY_ATTEMPT};
use tower_service::Service;

use super::forwarded_key::ForwardedKey;
use super::headers::{self, Origin};
use super::sending::Sent;
use super::telemetry;
use super::upstream::{Answer, SendError, Terms, Upstream};
use crate::config::Route;
use crate::connections::ConnectionState;
use crate::tls::ClientCertificate;

/// The connection of a client, among the extensions of its requests.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) origin: Origin,
    pub(super) state: ConnectionState,
    /// Verified, where clients must present one.
    pub(super) certificate: Option<ClientCertificate>,
}

/// The service that stands behind a route.
#[derive(Clone, Debug)]
pub(super) struct Forward(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    upstream: Arc<Upstream>,
    policy: Policy,
    key: ForwardedKey,
    terms: Terms,
}

impl Forward {
    pub(super) fn new(upstream: Arc<Upstream>, route: &Route) -> Self {
        let (policy, key) = (route.policy.clone(), ForwardedKey::of(route));
        let terms = Terms::new(policy.upstream_timeout(), route.upstream_idle);
        Self(Arc::new(Inner { upstream, policy, key, terms }))
    }
}

impl Service<Request<Body>> for Forward {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = self.0.clone();
        match request.extensions().get::<Attempt>().copied() {
            Some(attempt) => Box::pin(async move { inner.guarded(request, attempt).await }),
            None => Box::pin(async move { Ok(inner.unguarded(request).await) }),
        }
    }
}

impl Inner {
    /// An error means sent and not answered; a proof that nothing was sent is a response that says so. The
    /// layer bounds the time of the whole call and takes its end for that of a request that was sent, so
    /// the upstream's own bound on connecting must be the shorter one: see [`Terms`].
    async fn guarded(
        &self,
        mut request: Request<Body>,
        attempt: Attempt,
    ) -> Result<Response<Body>, BoxError> {
        let key = request.extensions().get::<Key>().cloned();
        if let Some(key) = &key {
            self.key.rewrite(request.headers_mut(), key, attempt);
        }
        let request = for_upstream(request, None);
        match self.send(request).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err("the upstream changed the protocol, which nobody asked for".into())
            }
            Ok(response) => Ok(for_client(response)),
            Err(SendError::NotSent(_)) => Ok(problem::upstream_unreachable(&self.policy)),
            Err(SendError::Sent(_)) if planted(Planted::SentIsUnsent) => {
                Ok(problem::upstream_unreachable(&self.policy))
            }
            Err(error @ SendError::Sent(_)) => Err(error.into()),
        }
    }

    /// Streamed both ways, never sent again; the time runs from the end of the request to the head of the
    /// answer.
    async fn unguarded(&self, mut request: Request<Body>) -> Response<Body> {
        request.headers_mut().remove(IDEMPOTENCY_ATTEMPT);
        let upgrade = Upgrade::asked(&mut request);
        let (head, body) = for_upstream(request, upgrade.as_ref()).into_parts();
        let (body, sent) = Sent::watch(body);
        let answer = tokio::select! {
            answer = self.send(Request::from_parts(head, body)) => answer,
            () = sent.and(self.policy.upstream_timeout()) => return problem::upstream_timeout(&self.policy),
        };
        match answer {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => match upgrade {
                Some(upgrade) => switch(response, upgrade),
                None => problem::upstream_failed(&self.policy),
            },
            Ok(response) => for_client(response),
            Err(SendError::NotSent(_)) => problem::upstream_unreachable(&self.policy),
            Err(SendError::Sent(_)) => problem::upstream_failed(&self.policy),
        }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Answer>, SendError> {
        self.upstream.send(request, self.terms).await
    }
}

fn for_upstream(request: Request<Body>, upgrade: Option<&Upgrade>) -> Request<Body> {
    let (mut head, body) = request.into_parts();
    let wants_trailers = head
        .headers
        .get(header::TE)
        .is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    headers::strip_hop_by_hop(&mut head.headers);
    // The body is read here, so the client was told to go on already.
    head.headers.remove(header::EXPECT);
    if wants_trailers {
        head.headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let has_host = head.headers.get(header::HOST).is_some_and(|host| !host.is_empty());
    if !has_host
        && let Some(host) =
            head.uri.authority().and_then(|host| HeaderValue::try_from(host.as_str()).ok())
    {
        head.headers.insert(header::HOST, host);
    }
    telemetry::propagate(&mut head.headers);
    if let Some(client) = head.extensions.get::<Arc<Client>>().cloned() {
        headers::add_forwarded(&mut head, &client.origin);
    }
    if let Some(upgrade) = upgrade {
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(header::UPGRADE, upgrade.protocol.clone());
    }
    Request::from_parts(head, body)
}

fn for_client(response: Response<Answer>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if is_until_close(&head, &body) {
        head.extensions.insert(UntilClose);
    }
    headers::strip_hop_by_hop(&mut head.headers);
    head.headers.append(header::VIA, VIA);
    head.version = Version::HTTP_11;
    Response::from_parts(head, Body::new(body))
}

/// Whether only the end of the connection ends the body, as hyper reads it: RFC 9112 section 6.3.
fn is_until_close(head: &http::response::Parts, body: &Answer) -> bool {
    let coding = head.headers.get_all(header::TRANSFER_ENCODING).iter().next_back();
    let is_framed = match coding {
        // hyper reads no coding that is not ASCII.
        Some(coding) => coding.to_str().is_ok_and(|coding| {
            let last = coding.rsplit(',').next();
            last.is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"))
        }),
        None => head.headers.contains_key(header::CONTENT_LENGTH),
    };
    head.version <= Version::HTTP_11 && !is_framed && !body.is_end_stream()
}

/// A client that wants to speak something else on its connection.
struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
    state: Option<ConnectionState>,
}

impl Upgrade {
    /// Only to a WebSocket: with any other protocol requests could pass by that nobody judged.
    fn asked(request: &mut Request<Body>) -> Option<Self> {
        let protocol = request.headers().get(header::UPGRADE)?.clone();
        if request.method() != Method::GET
            || !protocol.as_bytes().eq_ignore_ascii_case(b"websocket")
        {
            return None;
        }
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        let connection = request.extensions().get::<Arc<Client>>();
        let state = connection.map(|connection| connection.state.clone());
        Some(Self { protocol, client, state })
    }
}

/// Joins the two connections; from here on their bytes are their own.
fn switch(mut response: Response<Answer>, upgrade: Upgrade) -> Response<Body> {
    let server = hyper::upgrade::on(&mut response);
    let mut answer = response.map(|_| Body::default());
    let Upgrade { protocol, client, state } = upgrade;
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(header::UPGRADE, protocol);
    if let Some(state) = state {
        state.upgrade();
    }
    tokio::spawn(async move {
        if let (Ok(server), Ok(client)) = tokio::join!(server, client) {
            // How it ends is their affair.
            let _ =
                tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server))
                    .await;
        }
    });
    answer
}
