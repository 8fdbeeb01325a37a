//! Tells a caller the state of its own operation, without sending it again.

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::layer::Rules;
use super::request;
use super::{Body, OwnAnswer, problem};
use crate::key::{self, Key, KeyError, KeySource};
use crate::once::refused_permission;
use crate::policy::Policy;
use crate::problem::Problem;
use crate::record::State;
use crate::scope::ScopePart;
use crate::store::Seen;

pub(super) async fn look_up(rules: &Rules, head: &Parts) -> Response<Body> {
    let state = state(rules, head).await;
    state.unwrap_or_else(|problem| problem.response(&rules.policy))
}

async fn state(rules: &Rules, head: &Parts) -> Result<Response<Body>, Problem> {
    // A look-up has no signature, and the keys of webhooks are no secrets.
    if rules.has_verifier() {
        return Err(Problem::not_found());
    }
    let policy = &rules.policy;
    let key = named_key(policy, head).map_err(|error| Problem::key_invalid(&error, policy))?;
    let key = key.ok_or_else(Problem::look_up_key_missing)?;
    let who = rules.identify(head)?;
    if policy.scope().iter().any(|part| matches!(part, ScopePart::Json(_))) {
        return Err(Problem::look_up_needs_body());
    }
    let id = request::id(rules, head, b"", &who, &key);
    let seen = rules.once.inner.store.load(id).await.map_err(|_| Problem::store_unavailable())?;
    let shown = shown(&seen).ok_or_else(Problem::not_found)?;
    Ok(unpermitted(rules, head).await.unwrap_or(shown))
}

/// The answer to a caller that may no longer be told of its operation.
async fn unpermitted(rules: &Rules, head: &Parts) -> Option<Response<Body>> {
    let refusal = refused_permission(rules.permission(head), &rules.policy).await?;
    rules.counters.refused_by(&refusal);
    Some(problem::refused(&refusal, &rules.policy, "", || None))
}

/// The key, from where the policy says, else from `Idempotency-Key`, because a look-up has no body.
fn named_key(policy: &Policy, head: &Parts) -> Result<Option<Key>, KeyError> {
    let own = key::find(policy.key_from(), head, None, None, policy.key_rules())?;
    match own {
        Some(key) => Ok(Some(key)),
        None => key::find(&[KeySource::default()], head, None, None, policy.key_rules()),
    }
}

/// The state as a response; `None` for a record that is expired or released.
fn shown(seen: &Seen) -> Option<Response<Body>> {
    let record = seen.record.as_ref()?;
    let document = match &record.state {
        _ if record.is_expired(seen.now) => return None,
        State::Released { .. } => return None,
        State::Running { .. } => json!({ "state": "running" }),
        State::Unknown { .. } => json!({ "state": "unknown" }),
        State::Completed { response, .. } => {
            json!({ "state": "completed", "status": response.status.as_u16() })
        }
    };
    let mut response = Response::new(Body::from(bytes::Bytes::from(document.to_string())));
    *response.status_mut() = StatusCode::OK;
    response.extensions_mut().insert(OwnAnswer);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}
