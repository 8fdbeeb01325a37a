//! Steps behind an HTTP service: the key of a request, and the answer to its client.

use std::fmt;
use std::sync::Arc;

use http::Response;
use http::header::HeaderValue;
use http::request::Parts;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Database, Steps, StepsError, StepsOutcome, perform};
use crate::Operation;
use crate::http::request::{id_by, is_respelled, plain, value_fingerprint};
use crate::http::token;
use crate::http::{Body, IDEMPOTENT_REPLAYED, Who, kept_headers};
use crate::key;
use crate::policy::{Policy, Recovery};
use crate::problem::Problem;
use crate::scope::{Principal, ScopePart};
use crate::transaction::Reply;
use crate::transaction::parameters::compared;

impl<D, R> Steps<D, R>
where
    D: Database,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    /// The same for the handlers of an HTTP service. The key is found, refused and scoped by `policy`, as in
    /// [`Once::layer`](crate::Once::layer), and must be in the head of the request: in a header or in the query.
    /// `principal_of_caller` says who asks.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlx")]
    /// # mod service {
    /// use axum::{Json, Router, extract::State, http::Response, http::request::Parts, routing::post};
    /// use onlyonce::steps::{HttpSteps, PgDatabase, Steps};
    /// use onlyonce::{Policy, http::Body, scope::Principal};
    /// # type Order = u64;
    /// # async fn program(run: onlyonce::steps::Run<PgDatabase>, order: Order)
    /// #     -> Result<onlyonce::steps::Finished, onlyonce::steps::Stopped> { todo!() }
    ///
    /// async fn charge(
    ///     State(charges): State<HttpSteps<PgDatabase, Order>>,
    ///     head: Parts,
    ///     Json(order): Json<Order>,
    /// ) -> Response<Body> {
    ///     charges.answer(&head, &order).await
    /// }
    ///
    /// fn caller(head: &Parts) -> Option<Principal> {
    ///     let api_key = head.headers.get("x-api-key").filter(|key| !key.is_empty())?;
    ///     Some(Principal::of("api-key", api_key.as_bytes()))
    /// }
    ///
    /// fn app(database: PgDatabase) -> Router {
    ///     let charges = Steps::new("charge", program).over_http(database, caller, Policy::payments());
    ///     Router::new().route("/charges", post(charge)).with_state(charges)
    /// }
    /// # }
    /// # fn main() {}
    /// ```
    pub fn over_http<F, W>(
        &self,
        database: D,
        principal_of_caller: F,
        policy: Policy,
    ) -> HttpSteps<D, R>
    where
        F: Fn(&Parts) -> W + Send + Sync + 'static,
        W: Into<Who>,
    {
        let identify = Arc::new(move |head: &Parts| principal_of_caller(head).into());
        HttpSteps { steps: self.clone(), database, identify, policy: Arc::new(policy) }
    }
}

/// Steps for the handlers of an HTTP service. Made by [`Steps::over_http`].
pub struct HttpSteps<D: Database, R> {
    steps: Steps<D, R>,
    database: D,
    identify: Arc<dyn Fn(&Parts) -> Who + Send + Sync>,
    policy: Arc<Policy>,
}

impl<D, R> HttpSteps<D, R>
where
    D: Database,
    R: Serialize + DeserializeOwned + Send + 'static,
{
    /// Does the steps of the operation that a request is about, or finds out what became of it, and answers the client. The
    /// same key with another `request`, method, path or query is refused, and so is a request without a key. An attempt that failed is in progress
    /// for the client: it is made again, by a [`Completer`](super::Completer) or when the client asks again.
    pub async fn answer(&self, head: &Parts, request: &R) -> Response<Body> {
        let operation = match self.operation(head) {
            Ok(operation) => operation,
            Err(problem) => return problem.response(&self.policy),
        };
        match self.run(head, &operation, request).await {
            Ok(StepsOutcome::Done(reply)) => response(reply),
            Ok(StepsOutcome::Replay(reply)) => replay(reply),
            Ok(StepsOutcome::Reused) if is_respelled(&self.policy, head) => {
                Problem::key_respelled(self.policy.mismatch()).response(&self.policy)
            }
            Ok(outcome) => self.refused(&outcome).response(&self.policy),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the steps did not end");
                self.failed(&error).response(&self.policy)
            }
        }
    }

    /// As [`Steps::run`], but the method, the path and the query count as well, whatever the scope: the same key for another
    /// resource is another request.
    async fn run(
        &self,
        head: &Parts,
        operation: &Operation,
        request: &R,
    ) -> Result<StepsOutcome, StepsError> {
        let mut draft = self.steps.draft(operation, request)?;
        let fingerprint = value_fingerprint(&self.policy, head, draft.request.as_bytes());
        draft.fingerprint = compared(&fingerprint);
        perform::ask(&self.steps.program, &self.database, draft).await
    }

    fn operation(&self, head: &Parts) -> Result<Operation, Problem> {
        let policy = &self.policy;
        let key = key::find(policy.key_from(), head, None, None, policy.key_rules());
        let key = key.map_err(|error| Problem::key_invalid(&error, policy))?;
        let key = key.ok_or_else(|| Problem::key_missing(policy))?;
        plain(policy, head)?;
        token::refuse(policy, &key)?;
        let who = (self.identify)(head).principal()?;
        let id = id_by(policy, None, (head, b""), &who, &key);
        // Where keys are not by caller, a caller whose credential has changed asks for the same operation.
        let is_by_principal = policy.scope().contains(&ScopePart::Principal);
        let who = if is_by_principal { who } else { Principal::of("any", b"") };
        let operation = Operation::new(&format!("http:{id}"), who, key.as_str());
        let operation = operation.map_err(|error| Problem::key_invalid(&error, policy))?;
        Ok(operation.with_policy((**policy).clone()))
    }

    fn refused(&self, outcome: &StepsOutcome) -> Problem {
        match outcome {
            StepsOutcome::Reused => Problem::key_reused(self.policy.mismatch()),
            StepsOutcome::Unknown { .. } => Problem::held(Recovery::Hold),
            _ => Problem::in_progress(),
        }
    }

    /// Only what [has begun nothing](StepsError::may_be_begun) is said not to be executed: a client would be free to use a new
    /// key. No recovery of the policy applies to steps.
    fn failed(&self, error: &StepsError) -> Problem {
        match error {
            StepsError::Failed { .. } | StepsError::MaybeBegun { .. } => Problem::in_progress(),
            StepsError::Stuck { .. }
            | StepsError::OtherProgram { .. }
            | StepsError::OtherVersion
            | StepsError::Unreadable { .. } => Problem::held(Recovery::Hold),
            StepsError::Reply { status: Some(status), .. } => {
                Problem::response_unavailable(*status)
            }
            StepsError::Reply { status: None, .. } => Problem::already_done(),
            StepsError::Request(_) => Problem::request_too_large(&self.policy),
            StepsError::Database(_) | StepsError::NotInstalled(_) | StepsError::Setting(_) => {
                Problem::store_unavailable()
            }
        }
    }
}

impl<D: Database, R> Clone for HttpSteps<D, R> {
    fn clone(&self) -> Self {
        let (identify, policy) = (self.identify.clone(), self.policy.clone());
        Self { steps: self.steps.clone(), database: self.database.clone(), identify, policy }
    }
}

impl<D: Database, R> fmt::Debug for HttpSteps<D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSteps").field("steps", &self.steps).finish_non_exhaustive()
    }
}

fn response(reply: Reply) -> Response<Body> {
    let mut response = Response::new(Body::from(reply.body));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

/// The kept answer, without what was meant for the first caller alone, such as a cookie.
fn replay(reply: Reply) -> Response<Body> {
    let mut response = response(Reply { headers: kept_headers(&reply.headers), ..reply });
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    response
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests;
