//! What is private and reads foreign bytes, for the fuzz targets of this repository. Nothing in it is a promise.

use std::fmt::Debug;

use crate::body::{json, multipart};
use crate::record::Record;
use crate::record::codec::CodecError;
use crate::scope::OperationId;
use crate::store::Fault;
use crate::store::redis;

/// The canonical bytes of a JSON document; `None` where it is compared as raw bytes.
pub fn json(body: &[u8]) -> Option<Vec<u8>> {
    json::canonical(body, &[], &[]).ok()
}

/// The canonical bytes of form data in parts; `None` where it is compared as raw bytes.
pub fn multipart(body: &[u8], boundary: &[u8]) -> Option<Vec<u8>> {
    multipart::canonical(body, Some(boundary)).ok()
}

/// A record as Redis holds it.
pub fn redis_value(id: OperationId, record: &Record) -> Vec<u8> {
    redis::fuzzing::value(id, record)
}

/// The record that Redis holds as `value`.
pub fn redis_record(id: OperationId, value: &[u8]) -> Result<Record, CodecError> {
    redis::fuzzing::record(id, value)
}

/// What each reader of replies makes of these bytes from a Redis server; empty where they are no reply at all.
pub fn redis_reply(id: OperationId, bytes: &[u8]) -> Vec<Result<String, Fault>> {
    redis::fuzzing::readings(id, bytes)
}

/// What was understood, in words; so that targets can compare it without the types.
pub(crate) fn told<T: Debug>(read: Result<T, Fault>) -> Result<String, Fault> {
    read.map(|read| format!("{read:?}"))
}
