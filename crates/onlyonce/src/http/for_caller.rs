//! The answer of a request that was not executed, made for the caller that asks.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use tower_service::Service;

use super::layer::Rules;
use super::location::{self, Fetch};
use super::{Body, json_rpc, problem};
use crate::key::Key;
use crate::once::{Ended, Refusal};
use crate::policy::Policy;
use crate::store::BoxError;

/// What of a request its answer depends on, besides the record.
pub(super) struct ForCaller<S> {
    fetch: Option<Box<Fetch<S>>>,
    /// Where the route speaks JSON-RPC.
    rpc: Option<json_rpc::Caller>,
    origin: Option<HeaderValue>,
}

impl<S, A> ForCaller<S>
where
    S: Service<Request<Body>, Response = Response<A>> + Clone,
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    pub(super) fn of(rules: &Rules, inner: &S, head: &Parts, body: &[u8]) -> Self {
        Self {
            fetch: Fetch::prepare(rules, inner, head),
            rpc: rules.policy.is_json_rpc().then(|| json_rpc::Caller::of(body)),
            origin: origin(head),
        }
    }

    /// The answer to a request that went its whole way.
    pub(super) async fn ended(
        self,
        ended: Ended<Response<Body>>,
        policy: &Policy,
        key: &Key,
    ) -> Response<Body> {
        match ended {
            Ended::Fresh(response) | Ended::Unclear(response) => response,
            Ended::Refused(refusal) => self.refused(&refusal, policy, key).await,
            Ended::Overdue => problem::overdue(policy),
            Ended::Unsettled => problem::unsettled(policy),
        }
    }

    /// The answer to a request that was not executed.
    pub(super) async fn refused(
        self,
        refusal: &Refusal,
        policy: &Policy,
        key: &Key,
    ) -> Response<Body> {
        let answer = problem::refused(refusal, policy, key.as_str(), || self.origin);
        let answer = location::shown(self.fetch, refusal, policy, answer).await;
        json_rpc::for_caller(self.rpc.as_ref(), answer, policy)
    }
}

/// The origin of the page that asks.
pub(crate) fn origin(head: &Parts) -> Option<HeaderValue> {
    head.headers.get(header::ORIGIN).cloned()
}
