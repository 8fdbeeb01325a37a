//! Tokens over HTTP: whether a key is a token of its caller, and the answer that issues one.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::layer::Rules;
use super::request::with_scope;
use super::{Body, OwnAnswer};
use crate::clock::StoreTime;
use crate::key::Key;
use crate::once::Refusal;
use crate::policy::Tokens;
use crate::problem::Problem;
use crate::scope::token::{Bound, context_expiry, has_form};
use crate::scope::{Principal, Secret};

/// Refuses a key that is not a token of this caller for this operation, where it must be one. A token that has expired
/// is answered by its record, so that a retry still gets its answer; if there is none, with the refusal returned here.
pub(super) fn judge(
    rules: &Rules,
    head: &Parts,
    who: &Principal,
    key: &Key,
) -> Result<Option<Refusal>, Problem> {
    match rules.policy.tokens() {
        Tokens::Off => return Ok(None),
        Tokens::Optional if !has_form(key.as_str()) => return Ok(None),
        Tokens::Optional | Tokens::Required => {}
    }
    let secret = rules.once.inner.secret.as_ref();
    let verify = |secret| bound(rules, secret, head, who, |bound| bound.verify(key.as_str()));
    let expires_at = secret.and_then(verify);
    let expires_at = expires_at.ok_or_else(|| Problem::token_invalid(&rules.policy))?;
    Ok((expires_at <= rules.once.inner.clock.wall()).then_some(Refusal::TokenExpired))
}

/// The answer to the caller who asks for a token for the operation with this head.
pub(super) fn issue(rules: &Rules, head: &Parts) -> Response<Body> {
    let issued = issued(rules, head).map(|(token, expires_at)| created(&token, expires_at));
    issued.unwrap_or_else(|problem| problem.response(&rules.policy))
}

fn issued(rules: &Rules, head: &Parts) -> Result<(String, StoreTime), Problem> {
    let policy = &rules.policy;
    let has_tokens = policy.tokens() != Tokens::Off && policy.methods().contains(&head.method);
    let secret = rules.once.inner.secret.as_ref().filter(|_| has_tokens);
    let secret = secret.ok_or_else(Problem::no_tokens)?;
    let (context, who) = (context(head)?, rules.identify(head)?);
    let now = rules.once.inner.clock.wall();
    let expires_at = match context {
        Some(_) => context_expiry(now, policy.ttl()),
        None => now.plus(policy.ttl()),
    };
    let token = bound(rules, secret, head, &who, |bound| match context {
        Some(context) => bound.issue_for(context, expires_at),
        None => bound.issue(expires_at),
    });
    Ok((token, expires_at))
}

/// What `act` makes of the place that a token of this request is bound to.
fn bound<T>(
    rules: &Rules,
    secret: &Secret,
    head: &Parts,
    who: &Principal,
    act: impl FnOnce(Bound<'_>) -> T,
) -> T {
    let (route, parts) = (&**rules.policy.route(), rules.policy.scope());
    with_scope(head, who, |scope| act(Bound { secret, route, parts, scope }))
}

/// What the operation is about, in the caller's words. An empty context would make all operations of a caller one.
fn context(head: &Parts) -> Result<Option<&[u8]>, Problem> {
    let mut values = head.headers.get_all(IDEMPOTENCY_CONTEXT).iter().map(HeaderValue::as_bytes);
    match (values.next().map(<[u8]>::trim_ascii), values.next()) {
        (None, _) => Ok(None),
        (Some(b""), _) | (Some(_), Some(_)) => Err(Problem::token_context_unclear()),
        (Some(context), None) => Ok(Some(context)),
    }
}

fn created(token: &str, expires_at: StoreTime) -> Response<Body> {
    let document = json!({ "token": token, "expires_at": expires_at.rfc3339() });
    let mut response = Response::new(Body::from(Bytes::from(document.to_string())));
    *response.status_mut() = StatusCode::CREATED;
    response.extensions_mut().insert(OwnAnswer);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

const IDEMPOTENCY_CONTEXT: HeaderName = HeaderName::from_static("idempotency-context");
