//! Tokens over HTTP: whether a key is a token of its caller, and the answer that issues one.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::layer::Rules;
use super::request::with_scope;
use super::{Body, OwnAnswer};
use crate::clock::{StoreTime, as_ms};
use crate::key::Key;
use crate::once::Refusal;
use crate::policy::{Policy, Tokens};
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
    if !must_be_token(&rules.policy, key) {
        return Ok(None);
    }
    let secret = rules.once.inner.secret.as_ref();
    let verify = |secret| bound(rules, secret, head, who, |bound| bound.verify(key.as_str()));
    let expires_at = secret.and_then(verify);
    let expires_at = expires_at.ok_or_else(|| Problem::token_invalid(&rules.policy))?;
    Ok((expires_at <= rules.latest()).then_some(Refusal::TokenExpired))
}

/// The same where there is no secret to verify a token with: none is accepted.
#[cfg(any(feature = "sqlite", feature = "sqlx"))]
pub(crate) fn refuse(policy: &Policy, key: &Key) -> Result<(), Problem> {
    match must_be_token(policy, key) {
        true => Err(Problem::token_invalid(policy)),
        false => Ok(()),
    }
}

fn must_be_token(policy: &Policy, key: &Key) -> bool {
    match policy.tokens() {
        Tokens::Off => false,
        Tokens::Optional => has_form(key.as_str()),
        Tokens::Required => true,
    }
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
    let now = rules.earliest();
    let expires_at = match context {
        Some(_) => context_expiry(now, policy.ttl()),
        None => now.plus(policy.ttl()),
    };
    // Earlier than any answer to it, or another node could run it again when its answer has expired.
    let expires_at = expires_at.plus_ms(-as_ms(rules.margin()));
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
    let (route, parts) = (&**rules.policy.route(), &*rules.policy.id_scope());
    with_scope((head, b""), who, |scope| act(Bound { secret, route, parts, scope }))
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

#[cfg(all(test, any(feature = "sqlite", feature = "sqlx")))]
mod tests {
    use super::*;
    use crate::key::KeyRules;

    // R166
    #[test]
    fn without_a_secret_no_token_is_accepted() {
        let key = |text| Key::from_text(text, &KeyRules::default()).unwrap();
        let (own, token) = (key("order-17"), key("oot1_00"));
        let is_refused = |tokens, key| refuse(&Policy::default().with_tokens(tokens), key).is_err();
        assert_eq!([&own, &token].map(|key| is_refused(Tokens::Off, key)), [false, false]);
        assert_eq!([&own, &token].map(|key| is_refused(Tokens::Optional, key)), [false, true]);
        assert_eq!([&own, &token].map(|key| is_refused(Tokens::Required, key)), [true, true]);
    }
}
