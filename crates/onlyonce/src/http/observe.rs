//! `mode = "observe"`: every request runs as if there were no layer, and what the rules would have done
//! is counted. Its records are in a namespace of their own, and hold no answers.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, header};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tower_service::Service;

use super::Body;
use super::capture::keeps;
use super::request::{self, Whole};
use super::service::{Story, key_of_body, key_of_head};
use crate::once::{Ask, Verdict, Worked};
use crate::policy::Keeps;
use crate::record::{self, Kept, NotKept};
use crate::scope::OperationId;
use crate::store::BoxError;

impl<S, A> Story<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    /// Passes the request on, and watches.
    pub(super) async fn observe<B>(
        mut self,
        head: Parts,
        body: B,
    ) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if !self.can_observe(&head) {
            return self.forward(head, Body::new(body)).await;
        }
        let body = match request::read(&self.once, &self.rules, &head, body).await {
            Ok(body) => body,
            Err(problem) => return Ok(problem.response(&self.rules.policy)),
        };
        let Some(ask) = self.observed(&head, &body) else {
            return self.forward(head, body.into_body()).await;
        };
        let (tell, told) = oneshot::channel();
        self.watch(Arc::new(ask), told);
        let response = self.inner.call(Request::from_parts(head, body.into_body())).await?;
        let (head, body) = response.into_parts();
        // The watcher may have ended already.
        let _ = tell.send((keeps(&head, &self.rules.policy), head.status));
        Ok(Response::from_parts(head, Body::new(body)))
    }

    /// Only a body whose length is told, and small enough, can be watched without changing anything.
    fn can_observe(&self, head: &Parts) -> bool {
        let length = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let bytes: Option<usize> = length.and_then(|value| value.parse().ok());
        bytes.is_some_and(|bytes| bytes <= self.rules.policy.request_bytes_max)
    }

    /// What is asked, if the rules apply at all.
    fn observed(&self, head: &Parts, body: &Whole) -> Option<Ask> {
        let policy = &self.rules.policy;
        let early = key_of_head(policy, head).ok()?;
        let raw = request::raw_digest(head, body);
        let key = key_of_body(early, policy, head, body, raw).ok()??;
        let who = self.rules.identify(head).ok()?;
        let id = namespaced(request::id(&self.once, policy, head, &who, &key));
        let fingerprint = request::fingerprint(policy, head, body, raw);
        Some(self.ask(id, policy, head, &key, &who, fingerprint))
    }

    /// Claims, and settles with what the request came to.
    fn watch(&self, ask: Arc<Ask>, told: oneshot::Receiver<(Keeps, http::StatusCode)>) {
        let once = self.once.inner.clone();
        let work = move |_| async move {
            let verdict = told.await.map_or_else(
                |_| Verdict::Unknown(Arc::new(nothing(http::StatusCode::BAD_GATEWAY))),
                |(keeps, status)| verdict(keeps, status),
            );
            Worked { verdict, fresh: (), after: None }
        };
        tokio::spawn(async move {
            let ended = once.perform(ask.clone(), work).await;
            ask.count(&ended);
        });
    }
}

fn verdict(keeps: Keeps, status: http::StatusCode) -> Verdict {
    match keeps {
        Keeps::Store => Verdict::Store(Arc::new(nothing(status))),
        Keeps::Release => Verdict::NotExecuted,
        Keeps::Unknown => Verdict::Unknown(Arc::new(nothing(status))),
    }
}

fn nothing(status: http::StatusCode) -> record::Response {
    record::Response { status, headers: HeaderMap::new(), body: Kept::No(NotKept::Secret) }
}

fn namespaced(id: OperationId) -> OperationId {
    let mut hash = Sha256::new();
    hash.update(b"onlyonce observed 1");
    hash.update(id.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let (id, _) = digest.split_first_chunk().expect("32 bytes begin with 16");
    OperationId::from_bytes(*id)
}
