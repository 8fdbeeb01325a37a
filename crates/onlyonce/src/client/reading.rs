//! What one attempt means: a pure function of its answer, or of the reason why there is no answer.

use http::header::RETRY_AFTER;
use http::{HeaderName, StatusCode};
use serde_json::Value;

use super::answer::Answer;
use super::grpc;
use super::outcome::{Doubt, Stop};
use super::pause::Pause;
use super::transport::{Reach, TransportError};
use crate::clock::StoreTime;
use crate::policy::is_relayed;

/// What one attempt says about the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The operation happened, and this is its answer.
    Success,
    /// The operation happened, and its answer cannot be had; this was its status.
    Done(StatusCode),
    /// This attempt did nothing.
    Refused(Refusal),
    /// Whether the operation happened is not known, and asking again would not tell.
    Closed(Doubt),
    /// Send again, with the same key.
    Again(Again),
}

/// Which attempts a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// All of them: the refusal is what the server has on record for the key.
    OfRecord,
    /// This attempt only. If an earlier attempt may have been executed, the operation ends as unknown, with this
    /// refusal as the reason why it is not sent again.
    OfAttempt(Stop),
}

/// Why and when to send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// `None`: this attempt did nothing.
    pub(crate) doubt: Option<Doubt>,
    pub(crate) pause: Pause,
    /// Proved never to have reached the server.
    pub(crate) is_unsent: bool,
}

impl Again {
    /// The server knows the operation and still works on it: this is no failed attempt.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self.doubt, Some(Doubt::InProgress | Doubt::Conflict | Doubt::HeldUnknown))
    }
}

/// Reads an attempt. `now` is the wall clock, for dates in `Retry-After`.
pub(crate) fn read(heard: &Result<Answer, TransportError>, now: StoreTime) -> Meaning {
    match heard {
        Ok(answer) => of_answer(answer, now),
        Err(failure) => of_failure(failure),
    }
}

fn of_failure(failure: &TransportError) -> Meaning {
    let again =
        |doubt, is_unsent| Meaning::Again(Again { doubt, pause: Pause::Backoff, is_unsent });
    match failure.reach {
        Reach::NotSent => again(None, true),
        Reach::MaybeSent => again(Some(Doubt::NoAnswer), false),
        Reach::TooLarge(status) if status.is_success() => Meaning::Done(status),
        Reach::TooLarge(status) if status.is_redirection() => Meaning::Closed(Doubt::Redirected),
        Reach::TooLarge(_) => Meaning::Closed(Doubt::ServerError),
        Reach::Unusable => Meaning::Refused(Refusal::OfAttempt(Stop::Refused)),
    }
}

fn of_answer(answer: &Answer, now: StoreTime) -> Meaning {
    if let Some(meaning) = grpc::read(answer, now) {
        return meaning;
    }
    let status = answer.status;
    let problem = Problem::of(answer);
    match (status, problem.original_status) {
        _ if status.is_success() => return Meaning::Success,
        _ if status.is_redirection() => return Meaning::Closed(Doubt::Redirected),
        (StatusCode::GONE, Some(original)) => return Meaning::Done(original),
        (StatusCode::GONE, None) if problem.code == RESPONSE_UNAVAILABLE => {
            return Meaning::Closed(Doubt::AnswerNotKept);
        }
        _ => {}
    }
    // A replay never changes, so nothing that it says can make a retry useful.
    if answer.is_replay() {
        return terminal(answer, &problem);
    }
    let wants_retry = match problem.retry.or_else(|| should_retry(answer)) {
        Some(wants_retry) => wants_retry && !needs_credentials(status),
        None => is_retried(status),
    };
    match wants_retry {
        true => Meaning::Again(Again {
            doubt: doubt(answer, &problem),
            pause: Pause::of(answer, now),
            is_unsent: false,
        }),
        false => terminal(answer, &problem),
    }
}

/// What an answer means if no attempt follows it.
fn terminal(answer: &Answer, problem: &Problem) -> Meaning {
    let status = answer.status;
    let is_refusal =
        status.is_client_error() || is_unsupported(status) || problem.code == DEADLINE_EXCEEDED;
    match is_refusal {
        _ if problem.is_unknown() => Meaning::Closed(Doubt::HeldUnknown),
        true => Meaning::Refused(refusal(answer, problem)),
        false => Meaning::Closed(Doubt::ServerError),
    }
}

/// 501 and 505: the server answered before it could execute anything.
pub(crate) fn is_unsupported(status: StatusCode) -> bool {
    matches!(status.as_u16(), 501 | 505)
}

/// Only an answer that *is* the record speaks for attempts other than its own. A code that says what the
/// server did not find in its record proves nothing: a copy may still be on its way, the key may be
/// forgotten, and a request may have been read differently then.
fn refusal(answer: &Answer, problem: &Problem) -> Refusal {
    match problem.code.as_str() {
        _ if answer.is_replay() => Refusal::OfRecord,
        KEY_REUSED => Refusal::OfAttempt(Stop::KeyReused),
        KEY_EXPIRED => Refusal::OfAttempt(Stop::Window),
        _ => Refusal::OfAttempt(Stop::Refused),
    }
}

/// Whether the server says that the key belongs to another request.
pub(crate) fn is_key_reused(answer: &Answer) -> bool {
    Problem::of(answer).code == KEY_REUSED
}

/// Whether sending again is useless without other credentials.
pub(crate) fn needs_credentials(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407)
}

/// Whether this answer leaves open that the operation happened.
fn doubt(answer: &Answer, problem: &Problem) -> Option<Doubt> {
    match answer.status.as_u16() {
        _ if problem.is_unknown() => Some(Doubt::HeldUnknown),
        _ if problem.code == IN_PROGRESS => Some(Doubt::InProgress),
        _ if NOT_EXECUTED.contains(&problem.code.as_str()) => None,
        409 => Some(Doubt::Conflict),
        // A proxy, or a service without a Retry-After, may have executed the request or sent it on.
        503 if answer.headers.contains_key(RETRY_AFTER) && !is_relayed(&answer.headers) => None,
        500.. => Some(Doubt::ServerError),
        _ => None,
    }
}

fn should_retry(answer: &Answer) -> Option<bool> {
    answer.header(&STRIPE_SHOULD_RETRY)?.trim().parse().ok()
}

fn is_retried(status: StatusCode) -> bool {
    matches!(status.as_u16(), 409 | 425 | 429 | 500 | 502 | 503 | 504)
}

/// What a problem document (RFC 9457), or an error of Stripe's, says.
#[derive(Debug, Default)]
struct Problem {
    /// A code of ours, in either shape.
    code: String,
    /// True for the same key, false for a new one or never.
    retry: Option<bool>,
    original_status: Option<StatusCode>,
}

impl Problem {
    fn of(answer: &Answer) -> Self {
        let media_type = answer.header(&http::header::CONTENT_TYPE).unwrap_or_default();
        let document: Value = match media_type.contains("json") {
            true => serde_json::from_slice(&answer.body).unwrap_or_default(),
            false => Value::Null,
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if !media_type.starts_with("application/problem+json") {
            return Self { code: stripe_code(&document["error"]), ..Self::default() };
        }
        let original = document["original_status"].as_u64().and_then(|code| code.try_into().ok());
        Self {
            code: text(&document["code"]),
            retry: match document["retry"].as_str() {
                Some("same-key") => Some(true),
                Some("new-key" | "never") => Some(false),
                _ => None,
            },
            original_status: original.and_then(|code: u16| StatusCode::from_u16(code).ok()),
        }
    }

    fn is_unknown(&self) -> bool {
        self.code == OUTCOME_UNKNOWN
    }
}

/// The code of an error in Stripe's shape: Stripe's own two, or one of ours, which name themselves.
fn stripe_code(error: &Value) -> String {
    let text = |name| error[name].as_str().unwrap_or_default();
    match (text("type"), text("code")) {
        ("idempotency_error", _) => KEY_REUSED.to_owned(),
        (_, "idempotency_key_in_use") => IN_PROGRESS.to_owned(),
        (_, code) if code.starts_with("idempotency_") => code.to_owned(),
        _ => String::new(),
    }
}

const OUTCOME_UNKNOWN: &str = "idempotency_outcome_unknown";
const IN_PROGRESS: &str = "idempotency_in_progress";
const KEY_REUSED: &str = "idempotency_key_reused";
const KEY_EXPIRED: &str = "idempotency_key_expired";
const RESPONSE_UNAVAILABLE: &str = "idempotency_response_unavailable";
const DEADLINE_EXCEEDED: &str = "idempotency_deadline_exceeded";
/// Codes with which a server of ours says that the request did nothing, whatever the status.
const NOT_EXECUTED: [&str; 4] =
    ["idempotency_store_unavailable", "overloaded", "upstream_unreachable", "velocity_exceeded"];
const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

#[cfg(test)]
mod tests;
