//! What a gRPC answer means: its HTTP status is 200, and `grpc-status` has the result.

mod error_info;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderName, StatusCode};

use self::error_info::ErrorInfo;
use super::answer::Answer;
use super::outcome::{Doubt, Stop};
use super::pause::Pause;
use super::reading::{Again, Meaning, Refusal, Said, Word, of_said};
use crate::body::is_grpc_type;
use crate::clock::StoreTime;
use crate::code::GRPC_DOMAIN;

/// `None` for an answer that is not gRPC's.
pub(crate) fn read(answer: &Answer, now: StoreTime) -> Option<Meaning> {
    let status = is_grpc(answer).then(|| status(answer))?;
    if status != Some(OK)
        && let Some(said) = said(answer)
    {
        return Some(of_said(&said, &as_http(answer), now));
    }
    let again =
        |doubt| Meaning::Again(Again { doubt, pause: Pause::of(answer, now), is_unsent: false });
    Some(match status {
        // An answer without a status was cut short.
        None => again(Some(Doubt::NoAnswer)),
        Some(OK) => Meaning::Success,
        Some(code) if answer.is_replay() => terminal(code, Refusal::OfRecord),
        Some(ABORTED) => again(Some(Doubt::InProgress)),
        // grpc-go says RESOURCE_EXHAUSTED also after the handler, of an answer that is too large to send.
        Some(UNKNOWN | DEADLINE_EXCEEDED | RESOURCE_EXHAUSTED | INTERNAL | UNAVAILABLE) => {
            again(Some(Doubt::ServerError))
        }
        Some(code) => terminal(code, Refusal::OfAttempt(Stop::Refused)),
    })
}

fn is_grpc(answer: &Answer) -> bool {
    let media_type = answer.header(&http::header::CONTENT_TYPE).unwrap_or_default();
    answer.status == StatusCode::OK && is_grpc_type(media_type.as_bytes())
}

/// What a problem of ours says in the details of a gRPC status.
pub(crate) fn said(answer: &Answer) -> Option<Said> {
    let details = is_grpc(answer).then(|| field(answer, &GRPC_STATUS_DETAILS))??;
    let info = ErrorInfo::in_status(&STANDARD_ANY_PAD.decode(details).ok()?)?;
    let word = Word::of(&info.reason, info.domain == GRPC_DOMAIN);
    (word != Word::None).then_some(Said { word, retry: info.retry, original_status: None })
}

/// The HTTP status that an answer of gRPC is judged by, where it has a problem of ours.
pub(crate) fn http_status(answer: &Answer) -> Option<StatusCode> {
    Some(match is_grpc(answer).then(|| status(answer))?? {
        UNAUTHENTICATED => StatusCode::UNAUTHORIZED,
        PERMISSION_DENIED => StatusCode::FORBIDDEN,
        INVALID_ARGUMENT | NOT_FOUND | ALREADY_EXISTS | FAILED_PRECONDITION | OUT_OF_RANGE => {
            StatusCode::BAD_REQUEST
        }
        ABORTED => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    })
}

fn as_http(answer: &Answer) -> Answer {
    let status = http_status(answer).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Answer { headers: answer.headers.clone(), ..Answer::new(status) }
}

/// The status, in the trailers, or in the headers of an answer that has only trailers.
fn status(answer: &Answer) -> Option<u32> {
    field(answer, &GRPC_STATUS)?.parse().ok()
}

fn field<'a>(answer: &'a Answer, name: &HeaderName) -> Option<&'a str> {
    let trailers = answer.trailers.iter().chain([&answer.headers]);
    trailers.filter_map(|headers| headers.get(name)).next()?.to_str().ok()
}

fn terminal(code: u32, refusal: Refusal) -> Meaning {
    match code {
        CANCELLED | UNKNOWN | DEADLINE_EXCEEDED | INTERNAL | UNAVAILABLE | DATA_LOSS => {
            Meaning::Closed(Doubt::ServerError)
        }
        _ => Meaning::Refused(refusal),
    }
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// gRPC sends its bytes with or without padding.
const STANDARD_ANY_PAD: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const OK: u32 = 0;
const CANCELLED: u32 = 1;
const UNKNOWN: u32 = 2;
const INVALID_ARGUMENT: u32 = 3;
const DEADLINE_EXCEEDED: u32 = 4;
const NOT_FOUND: u32 = 5;
const ALREADY_EXISTS: u32 = 6;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const FAILED_PRECONDITION: u32 = 9;
const ABORTED: u32 = 10;
const OUT_OF_RANGE: u32 = 11;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const DATA_LOSS: u32 = 15;
const UNAUTHENTICATED: u32 = 16;
