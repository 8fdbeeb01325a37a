//! The same problems in the shapes of Stripe's API.

use http::StatusCode;
use serde_json::{Value, json};

use super::Problem;
use crate::code::{Code, STRIPE_IN_USE, STRIPE_REUSED};

/// Stripe answers a reused key with 400; everything else as we do.
pub(super) fn status(problem: &Problem) -> StatusCode {
    match names(problem.code, problem.status) {
        (STRIPE_REUSED, None) => StatusCode::BAD_REQUEST,
        _ => problem.status,
    }
}

pub(super) fn document(problem: &Problem) -> Value {
    let (kind, code) = names(problem.code, problem.status);
    let message = match code {
        None => reused(&problem.key),
        Some(_) => problem.detail.clone(),
    };
    let mut error = json!({ "type": kind, "message": message });
    if let Some(code) = code {
        error["code"] = code.into();
    }
    json!({ "error": error })
}

/// Stripe's `type` and `code`. A code that Stripe has no word for names itself.
fn names(code: Code, status: StatusCode) -> (&'static str, Option<&'static str>) {
    match code {
        Code::KeyReused => (STRIPE_REUSED, None),
        Code::InProgress => (REFUSED, Some(STRIPE_IN_USE)),
        Code::VelocityExceeded => (REFUSED, Some("rate_limit")),
        Code::KeyMissing
        | Code::KeyInvalid
        | Code::OutcomeUnknown
        | Code::OperationFailed
        | Code::ResponseUnavailable
        | Code::ResponseNotSent
        | Code::StoreUnavailable
        | Code::RolledBack
        | Code::NotFound
        | Code::PrincipalUnclear
        | Code::PrincipalMissing
        | Code::PrincipalInvalid
        | Code::AuthorizationUnknown
        | Code::WebhookSignatureInvalid
        | Code::RequestTooLarge
        | Code::RequestIncomplete
        | Code::RequestAmbiguous
        | Code::MethodNotAllowed
        | Code::Overloaded
        | Code::DeadlineExceeded
        | Code::KeyExpired
        | Code::NoTokens
        | Code::RepeatabilityUnsupported
        | Code::TooEarly
        | Code::UpstreamUnreachable
        | Code::UpstreamFailed
        | Code::UpstreamTimeout => {
            let kind = if status.is_server_error() { "api_error" } else { REFUSED };
            (kind, Some(code.text()))
        }
    }
}

fn reused(key: &str) -> String {
    format!(
        "Keys for idempotent requests can only be used with the same parameters they were first used \
         with. Try using a key other than '{key}' if you meant to execute a different request."
    )
}

const REFUSED: &str = "invalid_request_error";
