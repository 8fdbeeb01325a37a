//! What an attempt means: the pure reading of one answer, or of why there is none.

use http::{HeaderName, StatusCode};
use serde_json::Value;

use super::answer::Answer;
use super::grpc;
use super::outcome::Doubt;
use super::pause::Pause;
use super::transport::{Failure, Reach};
use crate::clock::StoreTime;

/// What one attempt says about the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It happened, and this is its answer.
    Success,
    /// It happened, and its answer is not to be had; this was its status.
    Done(StatusCode),
    /// This attempt did nothing.
    Refused {
        /// Whether that also holds for every attempt before: false where the server may have refused
        /// before it looked at its record of the key.
        speaks_for_all: bool,
    },
    /// Whether it happened is not known, and asking again would not tell.
    Closed(Doubt),
    /// Send again, with the same key.
    Again(Again),
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
    /// The server knows the operation and is only not done with it: asking is no failed attempt.
    pub(crate) fn is_question(&self) -> bool {
        matches!(self.doubt, Some(Doubt::InProgress | Doubt::HeldUnknown))
    }
}

/// Reads an attempt. `now` is the wall clock, for dates in `Retry-After`.
pub(crate) fn read(heard: &Result<Answer, Failure>, now: StoreTime) -> Meaning {
    match heard {
        Ok(answer) => of_answer(answer, now),
        Err(failure) => of_failure(failure),
    }
}

fn of_failure(failure: &Failure) -> Meaning {
    let again =
        |doubt, is_unsent| Meaning::Again(Again { doubt, pause: Pause::Backoff, is_unsent });
    match failure.reach {
        Reach::NotSent => again(None, true),
        Reach::MaybeSent => again(Some(Doubt::NoAnswer), false),
        Reach::TooLarge(status) if status.as_u16() < 400 => Meaning::Done(status),
        Reach::TooLarge(_) => Meaning::Closed(Doubt::ServerError),
        Reach::Unusable => Meaning::Refused { speaks_for_all: false },
    }
}

fn of_answer(answer: &Answer, now: StoreTime) -> Meaning {
    if let Some(meaning) = grpc::read(answer, now) {
        return meaning;
    }
    let status = answer.status;
    let problem = Problem::of(answer);
    if status.as_u16() < 400 {
        return Meaning::Success;
    }
    if let (StatusCode::GONE, Some(original)) = (status, problem.original_status) {
        return Meaning::Done(original);
    }
    // A replay never changes, so nothing that it says can make a retry useful.
    if answer.is_replay() {
        return terminal(status, &problem);
    }
    let wants_retry = match problem.retry.or_else(|| should_retry(answer)) {
        Some(wants_retry) => wants_retry,
        None => is_retried(status),
    };
    match wants_retry {
        true => Meaning::Again(Again {
            doubt: doubt(answer, &problem),
            pause: Pause::of(answer, now),
            is_unsent: false,
        }),
        false => terminal(status, &problem),
    }
}

/// What an answer means that is not followed by another attempt.
fn terminal(status: StatusCode, problem: &Problem) -> Meaning {
    match status.as_u16() {
        _ if problem.is_unknown() => Meaning::Closed(Doubt::HeldUnknown),
        _ if problem.code == DEADLINE_EXCEEDED => Meaning::Refused { speaks_for_all: true },
        // Not implemented; not in this version of HTTP: before anything could happen.
        501 | 505 => Meaning::Refused { speaks_for_all: true },
        500.. => Meaning::Closed(Doubt::ServerError),
        _ => Meaning::Refused { speaks_for_all: !is_before_record(status) },
    }
}

/// Whether this answer leaves open that the operation happened.
fn doubt(answer: &Answer, problem: &Problem) -> Option<Doubt> {
    match answer.status.as_u16() {
        _ if problem.is_unknown() => Some(Doubt::HeldUnknown),
        _ if problem.code == IN_PROGRESS || problem.stripe_code == KEY_IN_USE => {
            Some(Doubt::InProgress)
        }
        _ if NOT_EXECUTED.contains(&problem.code.as_str()) => None,
        409 => Some(Doubt::InProgress),
        // A proxy that sends no Retry-After may have sent the request on.
        503 if answer.headers.contains_key(http::header::RETRY_AFTER) => None,
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

/// Statuses that are given before the record of the key is looked at, and that are never stored.
fn is_before_record(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407 | 408 | 413 | 421 | 425 | 429)
}

/// What a problem document (RFC 9457), or an error of Stripe's, says.
#[derive(Debug, Default)]
struct Problem {
    code: String,
    stripe_code: String,
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
            return Self { stripe_code: text(&document["error"]["code"]), ..Self::default() };
        }
        let original = document["original_status"].as_u64().and_then(|code| code.try_into().ok());
        Self {
            code: text(&document["code"]),
            stripe_code: String::new(),
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

const OUTCOME_UNKNOWN: &str = "idempotency_outcome_unknown";
const IN_PROGRESS: &str = "idempotency_in_progress";
const DEADLINE_EXCEEDED: &str = "idempotency_deadline_exceeded";
/// Codes with which a server of ours says that the request did nothing, whatever the status.
const NOT_EXECUTED: [&str; 4] =
    ["idempotency_store_unavailable", "overloaded", "upstream_unreachable", "velocity_exceeded"];
const KEY_IN_USE: &str = "idempotency_key_in_use";
const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

#[cfg(test)]
mod tests;
