//! The way of a request through the layer, from its head to its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;
use tracing::Instrument;

use super::Rules;
use super::begin::Mine;
use super::slot::{Slot, Unkeyed};
use super::work::{Asked, Work};
use crate::http::early_data::is_replayable;
use crate::http::request;
use crate::http::service::{Early, key_of_body, key_of_head, slips_by};
use crate::http::token;
use crate::http::{Body, problem};
use crate::problem::Problem;
use crate::store::BoxError;
use crate::transaction::parameters::Parameters;

pub(super) struct Story<S> {
    pub(super) rules: Arc<Rules>,
    pub(super) inner: S,
}

impl<S, A> Story<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    /// The whole way:
    ///
    /// 1. Unguarded requests pass.
    /// 2. A key in the head is checked before the body is read.
    /// 3. The body is read whole.
    /// 4. Scope and key make the operation; the fingerprint tells whether the request is the same.
    /// 5. The transaction is begun, or another request is waited for.
    /// 6. The transaction is worked on and ended in a task of its own, for which this connection only waits.
    pub(super) async fn tell<B>(self, request: Request<B>) -> Result<Response<Body>, S::Error>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (head, body) = request.into_parts();
        let policy = self.rules.policy.clone();
        if !policy.methods().contains(&head.method) {
            return match () {
                () if slips_by(&policy, &head) => Ok(problem::method_unclear(&policy)),
                () if is_replayable(&head) => Ok(Problem::too_early().response(&policy)),
                () => self.forward(head, Body::new(body)).await,
            };
        }
        let early = match key_of_head(&policy, &head) {
            Ok(Early::NoKey) => return self.unkeyed(head, Body::new(body)).await,
            Ok(early) => early,
            Err(problem) => return Ok(problem.response(&policy)),
        };
        let body = match request::read_whole(&policy, &self.rules.room, &head, body).await {
            Ok(body) => body,
            Err(stop) => return Ok(stop.problem(&policy).response(&policy)),
        };
        match self.asked(early, head, body) {
            Ok(Keyed::Yes(asked))
                if Slot::is_executed(&asked.head, asked.id, &self.rules.tables) =>
            {
                self.forward(asked.head, asked.body.into_body()).await
            }
            Ok(Keyed::Yes(asked)) => Ok(self.work(asked).await),
            Ok(Keyed::No(head, body)) => self.unkeyed(head, body).await,
            Err(problem) => Ok(problem.response(&policy)),
        }
    }

    /// The operation that the request is about, if it has a key.
    fn asked(&self, early: Early, head: Parts, body: request::Whole) -> Result<Keyed, Problem> {
        let policy = &self.rules.policy;
        let raw = request::raw_digest(&head, &body);
        let Some(key) = key_of_body(early, policy, &head, &body, raw)? else {
            return Ok(Keyed::No(head, body.into_body()));
        };
        token::refuse(policy, &key)?;
        let who = (self.rules.identify)(&head).principal()?;
        let id = request::id_by(policy, None, (&head, &body.bytes), &who, &key);
        let fingerprint = request::kept_fingerprint(policy, None, (&head, &body), raw);
        let parameters = Parameters::of_request(policy, id, &who, &key, &fingerprint);
        Ok(Keyed::Yes(Asked { head, body, key, id, who, parameters: Arc::new(parameters) }))
    }

    async fn work(self, asked: Asked) -> Response<Body> {
        let (policy, inner) = (self.rules.policy.clone(), self.inner);
        let work = Work { rules: self.rules, asked };
        let Mine { tx, place } = match work.begin().await {
            Ok(mine) => mine,
            Err(response) => return response,
        };
        let task = async move {
            let response = work.run(inner, tx).await;
            drop(place);
            response
        };
        let ended = tokio::spawn(task.in_current_span()).await;
        // The runtime is shutting down, and the transaction may have been committed just before.
        ended.unwrap_or_else(|_| problem::unsettled(&policy))
    }

    /// Passes on a request that could have had a key, and has none.
    async fn unkeyed(self, mut head: Parts, body: Body) -> Result<Response<Body>, S::Error> {
        if is_replayable(&head) {
            return Ok(Problem::too_early().response(&self.rules.policy));
        }
        head.extensions.insert(Unkeyed(self.rules.policy.clone()));
        self.forward(head, body).await
    }

    /// Calls the inner service as if there were no layer.
    async fn forward(mut self, head: Parts, body: Body) -> Result<Response<Body>, S::Error> {
        let response = self.inner.call(Request::from_parts(head, body)).await?;
        Ok(response.map(Body::new))
    }
}

enum Keyed {
    Yes(Asked),
    No(Parts, Body),
}
