//! `mode = "observe"`: every genuine request runs as if there were no layer, and the layer counts what the rules would have
//! done. The records of this mode are in a namespace of their own, and hold no answers.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tower_service::Service;

use super::Body;
use super::capture::keeps;
use super::request::{self, Begun, Whole, declared_bytes};
use super::service::{Early, Story, key_of_body, key_of_head};
use crate::once::{Ask, Ended, Verdict, Worked};
use crate::policy::Keeps;
use crate::problem::Problem;
use crate::record::{self, Kept, NotKept};
use crate::scope::OperationId;
use crate::store::BoxError;

impl<S, A> Story<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    /// Passes the request on, and counts. Nothing is refused but what the layer's verifier does not take for genuine: the
    /// service behind it may rely on that.
    pub(super) async fn observe<B>(self, head: Parts, body: B) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if !self.rules.has_verifier() {
            return self.observe_genuine(head, body).await;
        }
        match request::read(&self.rules, &head, body).await {
            Ok(body) => self.observe_genuine(head, body.into_body()).await,
            Err(problem) => Ok(problem.response(&self.rules.policy)),
        }
    }

    /// A request that cannot be observed passes uncounted.
    async fn observe_genuine<B>(mut self, head: Parts, body: B) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Some(early) = self.watches(&head) else {
            return self.forward(head, Body::new(body)).await;
        };
        let (mut begun, mut body) = (Begun::default(), Box::pin(body));
        if let Err(stop) =
            begun.fill(&self.rules.policy, &self.rules.once.inner.room, &head, body.as_mut()).await
        {
            self.rules.counters.unobserved.one();
            return self.forward(head, begun.resume(stop, body)).await;
        }
        let body = begun.whole();
        let Some(ask) = self.observed(early, &head, &body) else {
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

    /// What the head tells about the key, if the request can be observed. A body can be read ahead without changing the
    /// request only if its length is known and within the limit.
    fn watches(&self, head: &Parts) -> Option<Early> {
        let (policy, counters) = (&self.rules.policy, &self.rules.counters);
        let early = match key_of_head(policy, head) {
            Ok(Early::NoKey) => {
                counters.unkeyed.one();
                return None;
            }
            Ok(early) => early,
            Err(_) => {
                counters.observed_refused.one();
                return None;
            }
        };
        match declared_bytes(head) {
            Some(bytes) if bytes <= policy.request_bytes_max() as u64 => Some(early),
            Some(_) => {
                counters.observed_refused.one();
                None
            }
            None => {
                counters.unobserved.one();
                None
            }
        }
    }

    /// The request as the engine needs it, if the rules apply to it.
    fn observed(&self, early: Early, head: &Parts, body: &Whole) -> Option<Ask> {
        let asked = self.asked(early, head, body);
        asked.unwrap_or_else(|_| {
            self.rules.counters.observed_refused.one();
            None
        })
    }

    fn asked(&self, early: Early, head: &Parts, body: &Whole) -> Result<Option<Ask>, Problem> {
        let policy = &self.rules.policy;
        let raw = request::raw_digest(head, body);
        let Some(key) = key_of_body(early, policy, head, body, raw)? else {
            self.rules.counters.unkeyed.one();
            return Ok(None);
        };
        let (who, _) = self.rules.admit(head, &key)?;
        let id = namespaced(request::id(&self.rules, head, &body.bytes, &who, &key));
        let secret = self.rules.once.inner.secret.as_ref();
        let fingerprint = request::kept_fingerprint(policy, secret, (head, body), raw);
        let ask = self.ask(id, head, &key, &who, fingerprint);
        // No reconciler is asked in observe mode: a question would be a request of our own.
        Ok(Some(Ask { asking: None, ..ask }))
    }

    /// Claims in the background, and settles with the status that the request got.
    fn watch(&self, ask: Arc<Ask>, told: oneshot::Receiver<(Keeps, http::StatusCode)>) {
        let once = self.rules.once.inner.clone();
        let work = move |_| async move {
            let verdict = told.await.map_or_else(
                |_| Verdict::Unknown(Arc::new(nothing(http::StatusCode::BAD_GATEWAY))),
                |(keeps, status)| verdict(keeps, status),
            );
            Worked::new(verdict, ())
        };
        tokio::spawn(async move {
            let ended = match once.cached_for(&ask) {
                Some(refusal) => Ended::Refused(refusal),
                None => once.perform(ask.clone(), work).await,
            };
            // Only counted: the request did run, so that neither a listener nor the audit trail may hear of a replay.
            ask.counters.ended(&ended);
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

/// The prefix stays that of the key, by which operators find the record.
fn namespaced(id: OperationId) -> OperationId {
    let mut hash = Sha256::new();
    hash.update(b"onlyonce observed 1");
    hash.update(id.as_bytes());
    let digest: [u8; 32] = hash.finalize().into();
    let prefix = id.prefix();
    let mut observed = *prefix.first_id().as_bytes();
    let rest = &mut observed[prefix.as_bytes().len()..];
    rest.copy_from_slice(&digest[..rest.len()]);
    OperationId::from_bytes(observed)
}
