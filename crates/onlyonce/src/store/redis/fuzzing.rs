//! The readers of this store, for the fuzz targets.

use ::redis::parse_redis_value;

use super::{record_value, reply};
use crate::fuzzing::told;
use crate::record::codec::CodecError;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::{Fault, Guard, Next};

pub(crate) fn value(id: OperationId, record: &Record) -> Vec<u8> {
    record_value::encode(id, record)
}

pub(crate) fn record(id: OperationId, value: &[u8]) -> Result<Record, CodecError> {
    record_value::decode(id, value)
}

pub(crate) fn readings(id: OperationId, bytes: &[u8]) -> Vec<Result<String, Fault>> {
    let Ok(value) = parse_redis_value(bytes) else { return Vec::new() };
    let guard = Guard::Unchanged(Revision { token: Token::from_bytes([7; 16]), count: 7 });
    let reply = reply::Reply::read;
    vec![
        told(reply(value.clone()).and_then(|reply| reply.seen(id, None))),
        told(reply(value.clone()).and_then(|reply| reply.swap(id, &guard, &Next::Absent))),
        told(reply(value.clone()).map(|reply| reply.beat(id))),
        told(reply::page(value.clone())),
        told(reply::wait(value.clone())),
        told(reply::check_value(value)),
    ]
}
