//! The value of a record in Redis: a head, which the scripts read and write, then details, then the outcome.
//!
//! `lua/common.lua` has the layout. The details are the record but for its state, in the [versioned codec](codec); of what
//! is in both, the head counts. The outcome is who settled the record, and the response. A sum over the id, the head and
//! the details shows damage to these, a checksum damage to the outcome.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use sha1::{Digest, Sha1};

use crate::clock::StoreTime;
use crate::hex;
use crate::record::codec::{self, CodecError};
use crate::record::{Record, State, Token};
use crate::scope::OperationId;

/// The value of the record of `id`.
pub(super) fn encode(id: OperationId, record: &Record) -> Vec<u8> {
    let (tag, at, outcome) = match &record.state {
        State::Running { lease_until } => (1, *lease_until, Vec::new()),
        State::Unknown { since } => (2, *since, Vec::new()),
        State::Released { expires_at } => (3, *expires_at, Vec::new()),
        State::Completed { expires_at, settled_by, response } => {
            (4, *expires_at, codec::encode_outcome(*settled_by, response))
        }
    };
    // Nobody reads the state in the details.
    let details = Record { state: State::Running { lease_until: at }, ..record.clone() };
    let details = codec::encode(&details);
    let mut value = vec![FORMAT, tag];
    value.extend(record.token.as_bytes());
    value.extend(record.count.to_le_bytes());
    for ms in [at.as_ms(), record.first_claimed_at.as_ms(), record.ttl_ms] {
        value.extend(ms.to_le_bytes());
    }
    let (details_bytes, outcome_bytes) = (details.len() as u32, outcome.len() as u32);
    for number in [record.attempt, details_bytes, outcome_bytes, crc32c::crc32c(&outcome)] {
        value.extend(number.to_le_bytes());
    }
    value.extend(sum(id, &value, &details));
    [value, details, outcome].concat()
}

/// The record of `id` that is stored as `value`.
pub(super) fn decode(id: OperationId, value: &[u8]) -> Result<Record, CodecError> {
    let (head, rest) = value.split_at_checked(HEAD_BYTES).ok_or(damaged("length"))?;
    match head[0] {
        FORMAT => {}
        0 => return Err(damaged("format")),
        found => return Err(CodecError::NewerFormat { found }),
    }
    let mut fields = &head[1..];
    let (tag, token, count) = (fields.get_u8(), fields.get_u128(), fields.get_u64_le());
    let (at, first_claimed_at) = (fields.get_i64_le(), fields.get_i64_le());
    let (ttl_ms, attempt) = (fields.get_i64_le(), fields.get_u32_le());
    let (details_bytes, outcome_bytes) =
        (fields.get_u32_le() as usize, fields.get_u32_le() as usize);
    let crc = fields.get_u32_le();
    let (details, outcome) = rest.split_at_checked(details_bytes).ok_or(damaged("length"))?;
    if outcome.len() != outcome_bytes || *fields != sum(id, &head[..SUM_AT], details) {
        return Err(damaged("sum"));
    }
    if crc != crc32c::crc32c(outcome) {
        return Err(damaged("outcome"));
    }
    Ok(Record {
        token: Token::from_bytes(token.to_be_bytes()),
        count,
        attempt,
        state: state(tag, StoreTime::from_ms(at), outcome)?,
        first_claimed_at: StoreTime::from_ms(first_claimed_at),
        ttl_ms,
        ..codec::decode(details)?
    })
}

fn state(tag: u8, at: StoreTime, outcome: &[u8]) -> Result<State, CodecError> {
    match tag {
        1 => Ok(State::Running { lease_until: at }),
        2 => Ok(State::Unknown { since: at }),
        3 => Ok(State::Released { expires_at: at }),
        4 => completed(at, outcome),
        _ => Err(damaged("state")),
    }
}

fn completed(expires_at: StoreTime, outcome: &[u8]) -> Result<State, CodecError> {
    let (settled_by, response) = codec::decode_outcome(Bytes::copy_from_slice(outcome))?;
    Ok(State::Completed { expires_at, settled_by, response: Arc::new(response) })
}

/// The first eight hex digits of the SHA-1, the only digest that scripts can make.
fn sum(id: OperationId, head: &[u8], details: &[u8]) -> Vec<u8> {
    let digest = Sha1::new().chain_update(id.to_string()).chain_update(head).chain_update(details);
    hex::encode(&digest.finalize()[..4]).into_bytes()
}

const fn damaged(what: &'static str) -> CodecError {
    CodecError::Damaged { what }
}

/// The format that is written.
const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 74;
const SUM_AT: usize = HEAD_BYTES - 8;
