//! The same problems in the shapes of Stripe's API.

use http::StatusCode;
use serde_json::{Value, json};

use super::Problem;

/// Stripe answers a reused key with 400; everything else as we do.
pub(super) fn status(problem: &Problem) -> StatusCode {
    match problem.kind.code {
        REUSED => StatusCode::BAD_REQUEST,
        _ => problem.status,
    }
}

pub(super) fn document(problem: &Problem) -> Value {
    let (kind, code, message) = match problem.kind.code {
        REUSED => ("idempotency_error", None, reused(&problem.key)),
        IN_PROGRESS => {
            ("invalid_request_error", Some("idempotency_key_in_use"), problem.detail.clone())
        }
        _ if problem.status == StatusCode::TOO_MANY_REQUESTS => {
            ("invalid_request_error", Some("rate_limit"), problem.detail.clone())
        }
        code if problem.status.is_server_error() => {
            ("api_error", Some(code), problem.detail.clone())
        }
        code => ("invalid_request_error", Some(code), problem.detail.clone()),
    };
    let mut error = json!({ "type": kind, "message": message });
    if let Some(code) = code {
        error["code"] = code.into();
    }
    json!({ "error": error })
}

fn reused(key: &str) -> String {
    format!(
        "Keys for idempotent requests can only be used with the same parameters they were first used \
         with. Try using a key other than '{key}' if you meant to execute a different request."
    )
}

const REUSED: &str = "idempotency_key_reused";
const IN_PROGRESS: &str = "idempotency_in_progress";
