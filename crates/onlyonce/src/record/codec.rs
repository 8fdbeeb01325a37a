//! The versioned bytes of a record, and of a response's head.
//!
//! 1. The first byte is the version. One that this build does not know is an error, never "absent".
//! 2. Every length is written before what it measures; nothing may follow the last field.
//! 3. Old reader, new data: refused by the version. New reader, old data: each released version keeps its own
//!    reader. Version 1 was never released, and is refused.
//!
//! ```
//! use onlyonce::record::{codec, Kept, Response};
//!
//! let created = Response {
//!     status: http::StatusCode::CREATED,
//!     headers: http::HeaderMap::new(),
//!     body: Kept::Bytes { body: "{}".into(), trailers: None },
//! };
//! let head = codec::encode_head(&created);
//! assert_eq!(codec::decode_head(&head, "{}".into())?, created);
//! # Ok::<(), codec::CodecError>(())
//! ```

mod wire;

use std::sync::Arc;

use bytes::{Buf, Bytes};
use http::StatusCode;

use self::wire::{Reader, Writer};
use super::{Kept, KeyText, NotKept, Record, Response, SettledBy, State, TakenFrom, Token};
use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::scope::Principal;

/// Why stored bytes could not be read. Do not treat the record as absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Written by a newer version. Do not retry; upgrade this node first.
    #[error("record format {found} is newer than {FORMAT}")]
    NewerFormat {
        /// The version that was found.
        found: u8,
    },
    /// Written by a build that was never released. Do not retry; use a new store.
    #[error("record format {found} is of an unreleased build and is not read")]
    OlderFormat {
        /// The version that was found.
        found: u8,
    },
    /// The bytes are not what was written. Do not retry; restore the store or settle the operation by hand.
    #[error("record bytes are damaged: {what}")]
    Damaged {
        /// What did not read.
        what: &'static str,
    },
}

/// The version that this build writes and reads. 1: without the target, never released.
pub const FORMAT: u8 = 2;

/// Status, headers, trailers, and whether the body is kept; the body itself is stored beside it.
pub fn encode_head(response: &Response) -> Vec<u8> {
    let mut writer = Writer::new(FORMAT);
    write_head(&mut writer, response);
    writer.finish()
}

/// The response with this head and body.
pub fn decode_head(head: &[u8], body: Bytes) -> Result<Response, CodecError> {
    let mut reader = open(head)?;
    let response = read_head(&mut reader, body)?;
    reader.finish()?;
    Ok(response)
}

/// Who settled a record, the head of the response, and its body, for stores that keep the outcome as one value.
pub fn encode_outcome(settled_by: SettledBy, response: &Response) -> Vec<u8> {
    let head = encode_head(response);
    let mut outcome = vec![settled_by_tag(settled_by)];
    outcome.extend((head.len() as u32).to_le_bytes());
    outcome.extend(head);
    if let Some(body) = response.body.stored() {
        outcome.extend_from_slice(body);
    }
    outcome
}

/// The outcome that was encoded. The body shares its bytes.
pub fn decode_outcome(mut outcome: Bytes) -> Result<(SettledBy, Response), CodecError> {
    let damaged = CodecError::Damaged { what: "outcome" };
    if outcome.len() < 5 {
        return Err(damaged);
    }
    let (tag, head_bytes) = (outcome.get_u8(), outcome.get_u32_le() as usize);
    if outcome.len() < head_bytes {
        return Err(damaged);
    }
    let head = outcome.split_to(head_bytes);
    Ok((settled_by(tag)?, decode_head(&head, outcome)?))
}

/// A whole record, body included, for stores that keep one value per operation.
pub fn encode(record: &Record) -> Vec<u8> {
    let mut writer = Writer::new(FORMAT);
    write_fields(&mut writer, record);
    write_state(&mut writer, &record.state);
    writer.finish()
}

/// The record that was encoded.
pub fn decode(bytes: &[u8]) -> Result<Record, CodecError> {
    let mut reader = open(bytes)?;
    let record = read_record(&mut reader)?;
    reader.finish()?;
    Ok(record)
}

fn open(bytes: &[u8]) -> Result<Reader<'_>, CodecError> {
    let mut reader = Reader::new(bytes);
    match reader.u8()? {
        FORMAT => Ok(reader),
        0 => Err(CodecError::Damaged { what: "version" }),
        found @ ..FORMAT => Err(CodecError::OlderFormat { found }),
        found => Err(CodecError::NewerFormat { found }),
    }
}

fn write_fields(writer: &mut Writer, record: &Record) {
    writer.raw(record.token.as_bytes());
    writer.u64(record.count);
    writer.u32(record.attempt);
    write_taken_from(writer, record.taken_from);
    writer.bytes(record.key.as_str().as_bytes());
    writer.u8(record.fingerprint.version);
    writer.raw(&record.fingerprint.canonical);
    writer.raw(&record.fingerprint.raw);
    writer.raw(record.principal.as_bytes());
    writer.bytes(record.route.as_bytes());
    writer.i64(record.first_claimed_at.as_ms());
    writer.i64(record.lease_ms);
    writer.i64(record.quiet_ms);
    writer.i64(record.ttl_ms);
    writer.bytes(record.target.as_bytes());
}

fn read_record(reader: &mut Reader<'_>) -> Result<Record, CodecError> {
    Ok(Record {
        token: Token::from_bytes(reader.array()?),
        count: reader.u64()?,
        attempt: reader.u32()?,
        taken_from: read_taken_from(reader)?,
        key: KeyText::new(reader.text()?),
        fingerprint: Fingerprint {
            version: reader.u8()?,
            canonical: reader.array()?,
            raw: reader.array()?,
        },
        principal: Principal::from_bytes(reader.array()?),
        route: reader.text()?.into(),
        first_claimed_at: read_time(reader)?,
        lease_ms: reader.i64()?,
        quiet_ms: reader.i64()?,
        ttl_ms: reader.i64()?,
        target: reader.text()?.into(),
        state: read_state(reader)?,
    })
}

fn write_taken_from(writer: &mut Writer, taken_from: Option<TakenFrom>) {
    let (tag, at) = match taken_from {
        None => (0, StoreTime::from_ms(0)),
        Some(TakenFrom::Unknown { since }) => (1, since),
        Some(TakenFrom::Released { expires_at }) => (2, expires_at),
    };
    writer.u8(tag);
    writer.i64(at.as_ms());
}

fn read_taken_from(reader: &mut Reader<'_>) -> Result<Option<TakenFrom>, CodecError> {
    let (tag, at) = (reader.u8()?, read_time(reader)?);
    match tag {
        0 => Ok(None),
        1 => Ok(Some(TakenFrom::Unknown { since: at })),
        2 => Ok(Some(TakenFrom::Released { expires_at: at })),
        _ => Err(CodecError::Damaged { what: "taken from" }),
    }
}

fn write_state(writer: &mut Writer, state: &State) {
    match state {
        State::Running { lease_until } => write_moment(writer, 1, *lease_until),
        State::Unknown { since } => write_moment(writer, 2, *since),
        State::Released { expires_at } => write_moment(writer, 3, *expires_at),
        State::Completed { expires_at, settled_by, response } => {
            write_moment(writer, 4, *expires_at);
            writer.u8(settled_by_tag(*settled_by));
            write_head(writer, response);
            if let Some(body) = response.body.stored() {
                writer.bytes(body);
            }
        }
    }
}

fn write_moment(writer: &mut Writer, tag: u8, at: StoreTime) {
    writer.u8(tag);
    writer.i64(at.as_ms());
}

fn read_state(reader: &mut Reader<'_>) -> Result<State, CodecError> {
    let (tag, at) = (reader.u8()?, read_time(reader)?);
    match tag {
        1 => Ok(State::Running { lease_until: at }),
        2 => Ok(State::Unknown { since: at }),
        3 => Ok(State::Released { expires_at: at }),
        4 => read_completed(reader, at),
        _ => Err(CodecError::Damaged { what: "state" }),
    }
}

fn read_completed(reader: &mut Reader<'_>, expires_at: StoreTime) -> Result<State, CodecError> {
    let settled_by = settled_by(reader.u8()?)?;
    let mut response = read_head(reader, Bytes::new())?;
    if let Kept::Bytes { body, .. } | Kept::Sealed(body) = &mut response.body {
        *body = Bytes::copy_from_slice(reader.bytes()?);
    }
    Ok(State::Completed { expires_at, settled_by, response: Arc::new(response) })
}

/// The number that stands for `settled_by` in every store.
pub fn settled_by_tag(settled_by: SettledBy) -> u8 {
    match settled_by {
        SettledBy::Owner => 1,
        SettledBy::Policy => 2,
        SettledBy::Reconcile => 3,
        SettledBy::Operator => 4,
    }
}

/// Who stands behind that number.
pub fn settled_by(tag: u8) -> Result<SettledBy, CodecError> {
    match tag {
        1 => Ok(SettledBy::Owner),
        2 => Ok(SettledBy::Policy),
        3 => Ok(SettledBy::Reconcile),
        4 => Ok(SettledBy::Operator),
        _ => Err(CodecError::Damaged { what: "settled by" }),
    }
}

fn write_head(writer: &mut Writer, response: &Response) {
    writer.u16(response.status.as_u16());
    writer.headers(&response.headers);
    match &response.body {
        Kept::Bytes { trailers: None, .. } => writer.u8(0),
        Kept::Bytes { trailers: Some(trailers), .. } => {
            writer.u8(1);
            writer.headers(trailers);
        }
        Kept::No(NotKept::TooLarge) => writer.u8(2),
        Kept::No(NotKept::Streamed) => writer.u8(3),
        Kept::No(NotKept::Secret) => writer.u8(4),
        Kept::No(NotKept::Refused) => writer.u8(5),
        Kept::No(NotKept::Location) => writer.u8(6),
        Kept::Sealed(_) => writer.u8(7),
        Kept::No(NotKept::Erased) => writer.u8(8),
        Kept::No(NotKept::Unopened) => writer.u8(9),
    }
}

fn read_head(reader: &mut Reader<'_>, body: Bytes) -> Result<Response, CodecError> {
    let status =
        StatusCode::from_u16(reader.u16()?).map_err(|_| CodecError::Damaged { what: "status" })?;
    let headers = reader.headers()?;
    let body = match reader.u8()? {
        0 => Kept::Bytes { body, trailers: None },
        1 => Kept::Bytes { body, trailers: Some(reader.headers()?) },
        2 => Kept::No(NotKept::TooLarge),
        3 => Kept::No(NotKept::Streamed),
        4 => Kept::No(NotKept::Secret),
        5 => Kept::No(NotKept::Refused),
        6 => Kept::No(NotKept::Location),
        7 => Kept::Sealed(body),
        8 => Kept::No(NotKept::Erased),
        9 => Kept::No(NotKept::Unopened),
        _ => return Err(CodecError::Damaged { what: "body kind" }),
    };
    Ok(Response { status, headers, body })
}

fn read_time(reader: &mut Reader<'_>) -> Result<StoreTime, CodecError> {
    reader.i64().map(StoreTime::from_ms)
}

#[cfg(test)]
mod tests;
