//! The readers of this store, for the fuzz targets.

use ::redis::parse_redis_value;

use super::scan_position::{Listing, Position};
use super::{record_value, reply};
use crate::fuzzing::told;
use crate::record::codec::{self, CodecError};
use crate::record::{Record, Revision, State, Token};
use crate::scope::OperationId;
use crate::store::{Fault, Guard};

/// What the scripts write: `lua/record.lua`.
pub(crate) fn value(id: OperationId, record: &Record) -> Vec<u8> {
    let (tag, at, outcome) = match &record.state {
        State::Running { lease_until } => (1, *lease_until, Vec::new()),
        State::Unknown { since } => (2, *since, Vec::new()),
        State::Released { expires_at } => (3, *expires_at, Vec::new()),
        State::Completed { expires_at, settled_by, response } => {
            (4, *expires_at, codec::encode_outcome(*settled_by, response))
        }
    };
    // Details are the record as it was drafted, whose state nobody reads.
    let drafted = Record { state: State::Running { lease_until: at }, ..record.clone() };
    let details = codec::encode(&drafted);
    let mut value = vec![record_value::FORMAT, tag];
    value.extend(record.token.as_bytes());
    value.extend(record.count.to_le_bytes());
    for ms in [at.as_ms(), record.first_claimed_at.as_ms(), record.ttl_ms] {
        value.extend(ms.to_le_bytes());
    }
    let sizes = [details.len() as u32, outcome.len() as u32, record_value::checksum(&outcome)];
    for number in [&[record.attempt][..], &sizes].concat() {
        value.extend(number.to_le_bytes());
    }
    value.extend(record_value::sum(id, &value, &details));
    [value, details, outcome].concat()
}

pub(crate) fn record(id: OperationId, value: &[u8]) -> Result<Record, CodecError> {
    record_value::decode(id, value)
}

pub(crate) fn readings(id: OperationId, bytes: &[u8]) -> Vec<Result<String, Fault>> {
    let Ok(value) = parse_redis_value(bytes) else { return Vec::new() };
    let from = Position { listing: Listing::AllKeys, number: 0, place: 0 };
    let revision = Revision { token: Token::from_bytes([7; 16]), count: 7 };
    let reply = reply::Reply::read;
    vec![
        told(reply(value.clone()).and_then(|reply| reply.seen(id, None))),
        told(reply(value.clone()).and_then(|reply| reply.swap(id, Guard::Unchanged(revision)))),
        told(reply(value.clone()).map(|reply| reply.beat())),
        told(reply::page(value.clone(), from)),
        told(reply::wait(value.clone())),
        told(reply::check_value(value)),
    ]
}
