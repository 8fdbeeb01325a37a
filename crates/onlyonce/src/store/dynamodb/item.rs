//! A record as an item of the table, and back.
//!
//! What a condition or an update names is an attribute of its own: token, count, state and its moment, the time to live.
//! The rest is the record as it was drafted, in the [versioned codec](codec), with a checksum over its id and bytes; and
//! the outcome with a checksum, or the name of the parts that have it. An item that does not read is an error, never an
//! absent record.

use std::collections::HashMap;
use std::sync::Arc;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;

use super::names::{EXPIRES, Names, SHARD};
use super::parts::Parts;
use crate::clock::StoreTime;
use crate::record::codec::{self, CodecError};
use crate::record::{Record, State, StateKind, Token};
use crate::scope::OperationId;

/// The attributes of an item.
pub(super) type Item = HashMap<String, AttributeValue>;

/// The whole item of a record. The outcome of a completed one is `answer`.
pub(super) fn encode(
    names: &Names,
    id: OperationId,
    record: &Record,
    answer: Option<Answer>,
) -> Item {
    let mut item = names.record(id);
    let mut put = |name: &str, value| drop(item.insert(name.to_owned(), value));
    let state = record.state.kind();
    put("v", number(FORMAT));
    put("tok", token(record.token));
    put("cnt", number(record.count));
    put("st", text(state.name()));
    put("at_ms", number(moment(&record.state).as_ms()));
    put("ttl_ms", number(record.ttl_ms));
    put("keep_s", number(seconds(record.ttl_ms)));
    put("rec", blob(summed(details(record), id)));
    if let Some(expires_at) = record.expires_at() {
        put(EXPIRES, number(seconds(expires_at.as_ms())));
    } else {
        put(SHARD, text(names.shard_of(id)));
    }
    if let Some(answer) = answer {
        put(answer.attribute(), answer.value());
    }
    item
}

/// Where the outcome of a completed record is.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// In the item itself, with its checksum.
    Inline(Vec<u8>),
    /// In items of its own.
    Parts(Parts),
}

impl Answer {
    pub(super) fn inline(outcome: Vec<u8>, id: OperationId) -> Self {
        Self::Inline(summed(outcome, id))
    }

    pub(super) const fn attribute(&self) -> &'static str {
        match self {
            Self::Inline(_) => "answer",
            Self::Parts(_) => "answer_in",
        }
    }

    /// The attribute that this kind of answer does not have.
    pub(super) const fn other_attribute(&self) -> &'static str {
        match self {
            Self::Inline(_) => "answer_in",
            Self::Parts(_) => "answer",
        }
    }

    pub(super) fn value(self) -> AttributeValue {
        match self {
            Self::Inline(bytes) => blob(bytes),
            Self::Parts(parts) => text(parts.to_string()),
        }
    }
}

/// The parts that have the outcome of this record, if they do.
pub(super) fn parts(item: &Item) -> Result<Option<Parts>, CodecError> {
    match item.get("answer_in") {
        None => Ok(None),
        Some(name) => {
            let parts = name.as_s().ok().and_then(|name| name.parse().ok());
            parts.map(Some).ok_or(damaged("answer_in"))
        }
    }
}

/// The record of `id` that is stored as `item`; `in_parts` is the outcome, where parts have it.
pub(super) fn decode(
    id: OperationId,
    item: &Item,
    in_parts: Option<Bytes>,
) -> Result<Record, CodecError> {
    match integer(item, "v")? {
        FORMAT => {}
        found => return Err(CodecError::NewerFormat { found: found.clamp(0, 255) as u8 }),
    }
    let token = <[u8; 16]>::try_from(bytes(item, "tok")?).map_err(|_| damaged("tok"))?;
    let at = StoreTime::from_ms(integer(item, "at_ms")?);
    let state = item.get("st").and_then(|state| state.as_s().ok()).ok_or(damaged("st"))?;
    let state = match StateKind::ALL.into_iter().find(|kind| kind.name() == state) {
        Some(StateKind::Running) => State::Running { lease_until: at },
        Some(StateKind::Unknown) => State::Unknown { since: at },
        Some(StateKind::Released) => State::Released { expires_at: at },
        Some(StateKind::Completed) => completed(id, item, at, in_parts)?,
        None => return Err(damaged("st")),
    };
    let details = codec::decode(unsummed(bytes(item, "rec")?, id)?)?;
    let count = u64::try_from(integer(item, "cnt")?).map_err(|_| damaged("cnt"))?;
    Ok(Record { token: Token::from_bytes(token), count, state, ..details })
}

fn completed(
    id: OperationId,
    item: &Item,
    expires_at: StoreTime,
    in_parts: Option<Bytes>,
) -> Result<State, CodecError> {
    let outcome = match in_parts {
        Some(outcome) => outcome,
        None => Bytes::copy_from_slice(unsummed(bytes(item, "answer")?, id)?),
    };
    let (settled_by, response) = codec::decode_outcome(outcome)?;
    Ok(State::Completed { expires_at, settled_by, response: Arc::new(response) })
}

/// The record without what the attributes and the answer have.
fn details(record: &Record) -> Vec<u8> {
    let state = State::Running { lease_until: StoreTime::from_ms(0) };
    codec::encode(&Record { state, ..record.clone() })
}

fn moment(state: &State) -> StoreTime {
    match state {
        State::Running { lease_until: at }
        | State::Unknown { since: at }
        | State::Released { expires_at: at }
        | State::Completed { expires_at: at, .. } => *at,
    }
}

/// The bytes, and a checksum over the id and them.
fn summed(mut bytes: Vec<u8>, id: OperationId) -> Vec<u8> {
    let sum = sum(&bytes, id);
    bytes.extend(sum.to_le_bytes());
    bytes
}

fn unsummed(bytes: &[u8], id: OperationId) -> Result<&[u8], CodecError> {
    let (bytes, found) = bytes.split_last_chunk().ok_or(damaged("length"))?;
    match u32::from_le_bytes(*found) == sum(bytes, id) {
        true => Ok(bytes),
        false => Err(damaged("sum")),
    }
}

fn sum(bytes: &[u8], id: OperationId) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(id.as_bytes()), bytes)
}

/// A number as wide as an `i64`; what an update has added up beyond that is the end of time.
pub(super) fn integer(item: &Item, name: &'static str) -> Result<i64, CodecError> {
    let number = item.get(name).and_then(|value| value.as_n().ok()).ok_or_else(|| damaged(name))?;
    let number: i128 = number.parse().map_err(|_| damaged(name))?;
    Ok(number.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

fn bytes<'a>(item: &'a Item, name: &'static str) -> Result<&'a [u8], CodecError> {
    let value = item.get(name).and_then(|value| value.as_b().ok());
    value.map(Blob::as_ref).ok_or_else(|| damaged(name))
}

/// Whole seconds for DynamoDB's own time to live: later than the milliseconds by [`SLACK_S`], because the engine's
/// trusted time may be behind DynamoDB's.
pub(super) const fn seconds(ms: i64) -> i64 {
    (ms / 1000).saturating_add(1 + SLACK_S)
}

/// Whether DynamoDB may have deleted this item by now.
pub(super) fn is_over(item: &Item, now: StoreTime) -> bool {
    integer(item, EXPIRES).is_ok_and(|expires_s| expires_s < now.as_ms() / 1000)
}

pub(super) fn token(token: Token) -> AttributeValue {
    blob(token.as_bytes().to_vec())
}

pub(super) fn blob(bytes: Vec<u8>) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

pub(super) fn number(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(super) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

const fn damaged(what: &'static str) -> CodecError {
    CodecError::Damaged { what }
}

/// The format that this build writes and reads.
pub(super) const FORMAT: i64 = 1;
/// How much longer than its time to live a record stays before DynamoDB may delete it by itself.
const SLACK_S: i64 = 3600;
