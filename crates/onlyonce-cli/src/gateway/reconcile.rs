//! Asks the upstream what became of an operation.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use onlyonce::http::{Body, kept_headers};
use onlyonce::planted::{Planted, planted};
use onlyonce::record::{Kept, Response};
use onlyonce::store::BoxError;
use onlyonce::{Finding, Question, Reconciler};
use serde_json::Value;
use tokio::runtime::Handle;

use super::credentials::Credentials;
use super::forwarded_key::ForwardedKey;
use super::upstream::{Terms, Upstream};
use crate::config::{Match, ReconcileRule, Route};

/// The rule of one route, and the service that it asks.
#[derive(Debug)]
pub(super) struct Asker {
    rule: ReconcileRule,
    matching: Match,
    key: ForwardedKey,
    sent_as: String,
    credentials: Credentials,
    upstream: Arc<Upstream>,
    body_bytes_max: usize,
    /// Where it asks: the engine's own thread has no sockets.
    runtime: Handle,
}

impl Asker {
    pub(super) fn new(
        route: &Route,
        rule: ReconcileRule,
        upstream: Arc<Upstream>,
        sent_as: &str,
    ) -> Self {
        Self {
            sent_as: sent_as.to_owned(),
            rule,
            matching: route.matching.clone(),
            key: ForwardedKey::of(route),
            credentials: Credentials::of(route),
            upstream,
            body_bytes_max: route.policy.response_bytes_max(),
            runtime: Handle::current(),
        }
    }

    fn request(&self, question: Question<'_>) -> Result<Request<Body>, BoxError> {
        // A record of a time when the route did not ask does not say what was sent.
        if question.sent_as != self.sent_as || !self.matching.has_path(question.path) {
            return Err("the request was sent by other rules than those in force".into());
        }
        let key = match planted(Planted::ReconcileByRawKey) {
            true => question.key.to_owned(),
            false => self.key.text(question.key, question.id),
        };
        let target = self.rule.ask.target(&key, &self.matching.places(question.path));
        let target = target.ok_or("the key or a part of the path leads out of its place")?;
        let mut request =
            Request::builder().method(self.rule.ask.method()).uri(target).body(Body::default())?;
        let headers = request.headers_mut();
        // The upstream may tell its tenants apart by it. A request without one was sent without one.
        headers.insert(header::HOST, question.host.parse()?);
        match (&self.rule.auth, question.headers) {
            (Some(auth), _) => drop(headers.insert(header::AUTHORIZATION, auth.clone())),
            (None, Some(client)) => headers.extend(self.credentials.copied(client)),
            (None, None) => {}
        }
        Ok(request)
    }
}

impl Reconciler for Asker {
    fn ask<'a>(
        &'a self,
        question: Question<'a>,
    ) -> Pin<Box<dyn Future<Output = Finding> + Send + 'a>> {
        let request = self.request(question);
        let is_certain = self.key.is_certain(&self.key.text(question.key, question.id));
        let (upstream, bytes_max) = (self.upstream.clone(), self.body_bytes_max);
        let found = self.rule.found.to_string();
        let asking =
            self.runtime.spawn(async move { find(&upstream, request?, bytes_max, &found).await });
        Box::pin(async move {
            let finding = asking.await.unwrap_or_else(|stopped| Err(stopped.into()));
            match finding.unwrap_or(Finding::Unclear) {
                Finding::Absent if !is_certain => Finding::Unclear,
                finding => finding,
            }
        })
    }

    fn asks_by_itself(&self) -> bool {
        self.rule.auth.is_some()
    }
}

async fn find(
    upstream: &Arc<Upstream>,
    request: Request<Body>,
    bytes_max: usize,
    found: &str,
) -> Result<Finding, BoxError> {
    // A question is safe: it takes any connection that is there.
    let terms = Terms::new(Duration::MAX, Duration::ZERO);
    let (head, body) = upstream.send(request, terms).await?.into_parts();
    let body = Limited::new(body, bytes_max).collect().await?.to_bytes();
    if head.status == StatusCode::NOT_FOUND {
        return Ok(Finding::Absent);
    }
    if !head.status.is_success() || !is_there(&serde_json::from_slice(&body)?, found) {
        return Ok(Finding::Unclear);
    }
    let headers = kept_headers(&head.headers);
    let body = Kept::Bytes { body, trailers: None };
    Ok(Finding::Found(Arc::new(Response { status: head.status, headers, body })))
}

/// Whether the pointer leads to something that is not empty.
fn is_there(document: &Value, pointer: &str) -> bool {
    match document.pointer(pointer) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(members)) => !members.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => true,
    }
}
