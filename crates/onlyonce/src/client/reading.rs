//! What one attempt means: a pure function of its answer, or of the reason why there is no answer.

mod said;

use http::header::RETRY_AFTER;
use http::{HeaderName, StatusCode};

pub(super) use self::said::{Said, Word};
use super::answer::Answer;
use super::grpc;
use super::outcome::{Doubt, Stop};
use super::pause::Pause;
use super::transport::{Reach, TransportError};
use crate::clock::StoreTime;
use crate::code::{Code, Retry};
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
    if status.is_success() {
        return Meaning::Success;
    }
    if status.is_redirection() {
        return Meaning::Closed(Doubt::Redirected);
    }
    of_said(&Said::of(answer), answer, now)
}

/// What a failure means that says this. `answer` has the status that it is judged by.
pub(super) fn of_said(said: &Said, answer: &Answer, now: StoreTime) -> Meaning {
    match said.word {
        Word::Code(code) => of_code(code, said, answer, now),
        // A newer server may have another code for an answer that is not kept.
        Word::Newer | Word::None if is_gone(said, answer) => done(said),
        Word::Newer => of_newer(said, answer, now),
        Word::None => of_stranger(said, answer, now),
    }
}

fn is_gone(said: &Said, answer: &Answer) -> bool {
    answer.status == StatusCode::GONE && said.original_status.is_some()
}

/// What a code says of the operation. An answer with one goes by its code alone, whatever its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// This request was not executed.
    Not(Stop),
    /// This request was not executed, and is refused again while its credentials are the same.
    Credentials,
    Maybe(Doubt),
    Executed,
}

fn verdict(code: Code) -> Verdict {
    match code {
        Code::ResponseUnavailable => Verdict::Executed,
        Code::InProgress => Verdict::Maybe(Doubt::InProgress),
        Code::OutcomeUnknown => Verdict::Maybe(Doubt::HeldUnknown),
        Code::KeyExpired => Verdict::Maybe(Doubt::KeyExpired),
        Code::ResponseNotSent
        | Code::NotFound
        | Code::AuthorizationUnknown
        | Code::UpstreamFailed
        | Code::UpstreamTimeout => Verdict::Maybe(Doubt::ServerError),
        Code::PrincipalMissing | Code::PrincipalInvalid => Verdict::Credentials,
        Code::KeyReused => Verdict::Not(Stop::KeyReused),
        Code::KeyMissing
        | Code::KeyInvalid
        | Code::OperationFailed
        | Code::StoreUnavailable
        | Code::RolledBack
        | Code::PrincipalUnclear
        | Code::WebhookSignatureInvalid
        | Code::RequestTooLarge
        | Code::RequestIncomplete
        | Code::RequestAmbiguous
        | Code::MethodNotAllowed
        | Code::Overloaded
        | Code::DeadlineExceeded
        | Code::VelocityExceeded
        | Code::NoTokens
        | Code::RepeatabilityUnsupported
        | Code::TooEarly
        | Code::UpstreamUnreachable => Verdict::Not(Stop::Refused),
    }
}

fn of_code(code: Code, said: &Said, answer: &Answer, now: StoreTime) -> Meaning {
    let wants_retry =
        said.retry.unwrap_or_else(|| code.retry()) == Retry::SameKey && !answer.is_replay();
    match verdict(code) {
        Verdict::Executed => done(said),
        Verdict::Maybe(doubt) if wants_retry => again(Some(doubt), answer, now),
        Verdict::Maybe(doubt) => Meaning::Closed(doubt),
        Verdict::Credentials => Meaning::Refused(refusal(answer, Stop::Refused)),
        Verdict::Not(_) if wants_retry => again(None, answer, now),
        Verdict::Not(stop) => Meaning::Refused(refusal(answer, stop)),
    }
}

/// An operation that was executed, and whose answer cannot be had.
fn done(said: &Said) -> Meaning {
    match said.original_status {
        Some(original) => Meaning::Done(original),
        None => Meaning::Closed(Doubt::AnswerNotKept),
    }
}

/// An answer of ours with a code that this client does not know. Only "send it with a new key" says that the request was
/// not executed.
fn of_newer(said: &Said, answer: &Answer, now: StoreTime) -> Meaning {
    let status = answer.status;
    let wants_retry = match said.retry {
        Some(retry) => retry == Retry::SameKey,
        None => is_retried(status),
    };
    match said.retry {
        Some(Retry::NewKey) if status.is_client_error() => {
            Meaning::Refused(refusal(answer, Stop::Refused))
        }
        _ if answer.is_replay() => Meaning::Closed(Doubt::NewerCode),
        _ if needs_credentials(status) && said.retry != Some(Retry::Never) => {
            Meaning::Refused(Refusal::OfAttempt(Stop::Refused))
        }
        _ if wants_retry => {
            let did_nothing = is_held_off(status) || asks_to_come_back(answer);
            again((!did_nothing).then_some(Doubt::NewerCode), answer, now)
        }
        _ => Meaning::Closed(Doubt::NewerCode),
    }
}

/// An answer without a code of ours: of the service, or of a proxy.
fn of_stranger(said: &Said, answer: &Answer, now: StoreTime) -> Meaning {
    let status = answer.status;
    // A replay never changes, so nothing that it says can make a retry useful.
    if answer.is_replay() {
        return terminal(said, answer);
    }
    let asked = said.retry.map(|retry| retry == Retry::SameKey).or_else(|| should_retry(answer));
    let wants_retry = match asked {
        Some(wants_retry) => wants_retry && !needs_credentials(status),
        None => is_retried(status),
    };
    match wants_retry {
        true => again(doubt(answer), answer, now),
        false => terminal(said, answer),
    }
}

fn again(doubt: Option<Doubt>, answer: &Answer, now: StoreTime) -> Meaning {
    Meaning::Again(Again { doubt, pause: Pause::of(answer, now), is_unsent: false })
}

/// What an answer without a code of ours means if no attempt follows it.
fn terminal(said: &Said, answer: &Answer) -> Meaning {
    let status = answer.status;
    let may_run = !answer.is_replay() && said.retry != Some(Retry::NewKey);
    match status {
        StatusCode::REQUEST_TIMEOUT if may_run => Meaning::Closed(Doubt::ServerError),
        StatusCode::CONFLICT if may_run => Meaning::Closed(Doubt::Conflict),
        _ if status.is_client_error() || is_unsupported(status) => {
            Meaning::Refused(refusal(answer, Stop::Refused))
        }
        _ => Meaning::Closed(Doubt::ServerError),
    }
}

/// Only an answer that *is* the record speaks for attempts other than its own. A code that says what the
/// server did not find in its record proves nothing: a copy may still be on its way, the key may be
/// forgotten, and a request may have been read differently then.
fn refusal(answer: &Answer, stop: Stop) -> Refusal {
    match answer.is_replay() {
        true => Refusal::OfRecord,
        false => Refusal::OfAttempt(stop),
    }
}

/// What a refusal says of the next request.
pub(crate) fn advice(answer: &Answer) -> Retry {
    let said = said(answer);
    let of_code = match said.word {
        Word::Code(code) => Some(code.retry()),
        Word::Newer | Word::None => None,
    };
    let status = grpc::http_status(answer).unwrap_or(answer.status);
    match said.retry.or(of_code) {
        // What is on record does not change.
        Some(Retry::SameKey) | None if answer.is_replay() => Retry::NewKey,
        Some(retry) => retry,
        None if needs_credentials(status) || is_released(status) => Retry::SameKey,
        None => Retry::NewKey,
    }
}

/// Whether the answer is a problem of ours, and not what became of the operation.
pub(crate) fn is_ours(answer: &Answer) -> bool {
    said(answer).word != Word::None
}

fn said(answer: &Answer) -> Said {
    grpc::said(answer).unwrap_or_else(|| Said::of(answer))
}

/// 501 and 505: the server answered before it could execute anything.
pub(crate) fn is_unsupported(status: StatusCode) -> bool {
    matches!(status.as_u16(), 501 | 505)
}

/// Whether the server says that the key belongs to another request.
pub(crate) fn is_key_reused(answer: &Answer) -> bool {
    match said(answer).word {
        Word::Code(code) => verdict(code) == Verdict::Not(Stop::KeyReused),
        Word::Newer | Word::None => false,
    }
}

/// Whether sending again is useless without other credentials.
fn needs_credentials(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 407)
}

/// Whether a service that guards its keys keeps no record of such an answer: the key is as good as before, and what
/// was sent with it earlier may have been executed.
fn is_released(status: StatusCode) -> bool {
    status == StatusCode::MISDIRECTED_REQUEST || is_held_off(status)
}

/// Whether this answer, which has no code of ours, leaves open that the operation happened.
fn doubt(answer: &Answer) -> Option<Doubt> {
    match answer.status.as_u16() {
        409 => Some(Doubt::Conflict),
        // A proxy, or a service without a Retry-After, may have executed the request or sent it on.
        503 if asks_to_come_back(answer) => None,
        // Some services answer 408 when the handler takes too long.
        408 | 500.. => Some(Doubt::ServerError),
        _ => None,
    }
}

fn asks_to_come_back(answer: &Answer) -> bool {
    answer.status == StatusCode::SERVICE_UNAVAILABLE
        && answer.headers.contains_key(RETRY_AFTER)
        && !is_relayed(&answer.headers)
}

fn should_retry(answer: &Answer) -> Option<bool> {
    answer.header(&STRIPE_SHOULD_RETRY)?.trim().parse().ok()
}

/// 425 and 429: the server did not begin.
fn is_held_off(status: StatusCode) -> bool {
    matches!(status.as_u16(), 425 | 429)
}

fn is_retried(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 409 | 500 | 502 | 503 | 504) || is_held_off(status)
}

const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

#[cfg(test)]
mod tests;
