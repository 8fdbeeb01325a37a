//! What a gRPC answer means: its HTTP status is 200, and `grpc-status` has the result.

use http::{HeaderName, StatusCode};

use super::answer::Answer;
use super::outcome::{Doubt, Stop};
use super::pause::Pause;
use super::reading::{Again, Meaning, Refusal};
use crate::body::is_grpc_type;
use crate::clock::StoreTime;

/// `None` for an answer that is not gRPC's.
pub(crate) fn read(answer: &Answer, now: StoreTime) -> Option<Meaning> {
    let media_type = answer.header(&http::header::CONTENT_TYPE)?;
    if answer.status != StatusCode::OK || !is_grpc_type(media_type.as_bytes()) {
        return None;
    }
    let again =
        |doubt| Meaning::Again(Again { doubt, pause: Pause::of(answer, now), is_unsent: false });
    Some(match status(answer) {
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

/// The status, in the trailers, or in the headers of an answer that has only trailers.
fn status(answer: &Answer) -> Option<u32> {
    let trailers = answer.trailers.iter().chain([&answer.headers]);
    let mut found = trailers.filter_map(|headers| headers.get(GRPC_STATUS));
    found.next()?.to_str().ok()?.parse().ok()
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
const OK: u32 = 0;
const CANCELLED: u32 = 1;
const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
const ABORTED: u32 = 10;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const DATA_LOSS: u32 = 15;
