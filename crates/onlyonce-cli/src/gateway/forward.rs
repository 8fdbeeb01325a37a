//! Passes a request on, and says whether it may have been received.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onlyonce::http::{Body, problem};
use onlyonce::key::KeySource;
use onlyonce::policy::Policy;
use onlyonce::store::BoxError;
use onlyonce::{Attempt, http::IDEMPOTENCY_ATTEMPT};
use tower_service::Service;

use super::headers::{self, Origin};
use super::sending::Sent;
use super::upstream::{Answer, SendError, Terms, Upstream};
use super::wire::Line;
use crate::config::{ForwardKey, Route};

/// The connection of a client, among the extensions of its requests.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) origin: Origin,
    pub(super) line: Line,
}

/// The service that stands behind a route.
#[derive(Clone, Debug)]
pub(super) struct Forward(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    upstream: Arc<Upstream>,
    policy: Policy,
    forward_key: ForwardKey,
    terms: Terms,
}

impl Forward {
    pub(super) fn new(upstream: Arc<Upstream>, route: &Route) -> Self {
        let policy = route.policy.clone();
        let terms = Terms::new(policy.upstream_timeout, route.upstream_idle);
        Self(Arc::new(Inner { upstream, policy, forward_key: route.forward_key, terms }))
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
        self.rewrite_key(request.headers_mut(), attempt);
        let request = for_upstream(request, None);
        match self.send(request).await {
            Ok(response) => Ok(for_client(response)),
            Err(SendError::NotSent(_)) => Ok(problem::upstream_unreachable(&self.policy)),
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
            () = sent.and(self.policy.upstream_timeout) => return problem::upstream_timeout(&self.policy),
        };
        match answer {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                switch(response, upgrade)
            }
            Ok(response) => for_client(response),
            Err(SendError::NotSent(_)) => problem::upstream_unreachable(&self.policy),
            Err(SendError::Sent(_)) => problem::upstream_failed(&self.policy),
        }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Answer>, SendError> {
        self.upstream.send(request, self.terms).await
    }

    /// What the upstream sees of the key.
    fn rewrite_key(&self, headers: &mut HeaderMap, attempt: Attempt) {
        let names = self.policy.key_from.iter().filter_map(|source| match source {
            KeySource::Header(name) => Some(name),
            _ => None,
        });
        for name in names {
            match self.forward_key {
                ForwardKey::Verbatim => {}
                ForwardKey::Strip => drop(headers.remove(name)),
                ForwardKey::Derive => {
                    let derived = HeaderValue::try_from(attempt.derive("forward"));
                    headers.insert(name, derived.expect("hexadecimal digits are a header value"));
                }
            }
        }
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
    if !head.headers.contains_key(header::HOST)
        && let Some(host) =
            head.uri.authority().and_then(|host| HeaderValue::try_from(host.as_str()).ok())
    {
        head.headers.insert(header::HOST, host);
    }
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
    headers::strip_hop_by_hop(&mut head.headers);
    head.headers.append(header::VIA, headers::VIA);
    head.version = Version::HTTP_11;
    Response::from_parts(head, Body::new(body))
}

/// A client that wants to speak something else on its connection.
struct Upgrade {
    protocol: HeaderValue,
    client: OnUpgrade,
    line: Option<Line>,
}

impl Upgrade {
    fn asked(request: &mut Request<Body>) -> Option<Self> {
        let protocol = request.headers().get(header::UPGRADE)?.clone();
        let client = request.extensions_mut().remove::<OnUpgrade>()?;
        let connection = request.extensions().get::<Arc<Client>>();
        let line = connection.map(|connection| connection.line.clone());
        Some(Self { protocol, client, line })
    }
}

/// Joins the two connections; from here on their bytes are their own.
fn switch(mut response: Response<Answer>, upgrade: Option<Upgrade>) -> Response<Body> {
    let server = hyper::upgrade::on(&mut response);
    let mut answer = response.map(|_| Body::default());
    let Some(Upgrade { protocol, client, line }) = upgrade else {
        return answer;
    };
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.headers_mut().insert(header::UPGRADE, protocol);
    if let Some(line) = line {
        line.upgrade();
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
