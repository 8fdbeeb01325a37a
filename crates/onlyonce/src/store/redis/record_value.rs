//! The value of a record in Redis: a head, which the scripts read and write, then details, then the outcome.
//!
//! `lua/common.lua` has the layout. The script takes the times from Redis's clock and makes the head. The details
//! are the record as it was drafted, in the [versioned codec](codec). The outcome is who settled the record, and the
//! response. A sum over the id, the head and the details shows damage to these, a checksum damage to the outcome.

use std::sync::Arc;

use bytes::Bytes;
use sha1::{Digest, Sha1};

use super::keys::hex;
use crate::clock::StoreTime;
use crate::record::codec::{self, CodecError};
use crate::record::{Kept, Record, Response, SettledBy, State, Token};
use crate::scope::OperationId;
use crate::store::{Attempt, Draft};

/// The details of a first attempt.
pub(super) fn details(draft: &Draft) -> Vec<u8> {
    codec::encode(&drafted(draft))
}

/// The details of a later attempt.
pub(super) fn details_of(attempt: &Attempt) -> Vec<u8> {
    let taken_from = attempt.taken_from;
    codec::encode(&Record { taken_from, attempt: attempt.attempt, ..drafted(&attempt.draft) })
}

/// The record, without what the head says.
fn drafted(draft: &Draft) -> Record {
    Record {
        token: draft.token,
        count: 0,
        attempt: 1,
        state: State::Running { lease_until: StoreTime::from_ms(0) },
        taken_from: None,
        key: draft.key.clone(),
        fingerprint: draft.fingerprint,
        principal: draft.principal,
        route: draft.route.clone(),
        target: draft.target.clone(),
        first_claimed_at: StoreTime::from_ms(0),
        lease_ms: draft.lease.as_ms(),
        quiet_ms: draft.quiet_ms,
        ttl_ms: draft.ttl_ms,
    }
}

/// Who settled the record, the head of the response, and its body.
pub(super) fn outcome(settled_by: SettledBy, response: &Response) -> Vec<u8> {
    let head = codec::encode_head(response);
    let mut outcome = vec![codec::settled_by_tag(settled_by)];
    outcome.extend((head.len() as u32).to_le_bytes());
    outcome.extend(head);
    if let Kept::Bytes { body, .. } = &response.body {
        outcome.extend_from_slice(body);
    }
    outcome
}

/// The checksum of an outcome; zero where there is none.
pub(super) fn checksum(outcome: &[u8]) -> [u8; 4] {
    if outcome.is_empty() { [0; 4] } else { crc32c::crc32c(outcome).to_le_bytes() }
}

/// The record of `id` that is stored as `value`.
pub(super) fn decode(id: OperationId, value: &[u8]) -> Result<Record, CodecError> {
    let (head, rest) = value.split_at_checked(HEAD_BYTES).ok_or(damaged("length"))?;
    match head[0] {
        FORMAT => {}
        0 => return Err(damaged("format")),
        found => return Err(CodecError::NewerFormat { found }),
    }
    let (details, outcome) = rest.split_at_checked(number(head, 54)).ok_or(damaged("length"))?;
    if outcome.len() != number(head, 58) || head[66..] != sum(id, &head[..66], details) {
        return Err(damaged("sum"));
    }
    if head[62..66] != checksum(outcome) {
        return Err(damaged("outcome"));
    }
    let drafted = codec::decode(details)?;
    Ok(Record {
        token: Token::from_bytes(array(head, 2)),
        count: u64::from_le_bytes(array(head, 18)),
        attempt: u32::from_le_bytes(array(head, 50)),
        state: state(head[1], moment(head, 26), outcome)?,
        first_claimed_at: moment(head, 34),
        ttl_ms: i64::from_le_bytes(array(head, 42)),
        ..drafted
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
    let (start, rest) = outcome.split_at_checked(5).ok_or(damaged("outcome"))?;
    let (head, body) = rest.split_at_checked(number(start, 1)).ok_or(damaged("outcome"))?;
    let response = codec::decode_head(head, Bytes::copy_from_slice(body))?;
    let settled_by = codec::settled_by(start[0])?;
    Ok(State::Completed { expires_at, settled_by, response: Arc::new(response) })
}

/// The first eight hex digits of the SHA-1, the only digest that scripts can make.
fn sum(id: OperationId, head: &[u8], details: &[u8]) -> [u8; 8] {
    let digest = Sha1::new().chain_update(hex(id)).chain_update(head).chain_update(details);
    let digest = digest.finalize();
    let mut sum = [0; 8];
    for (place, half) in sum.iter_mut().zip(digest.iter().flat_map(|byte| [byte >> 4, byte & 15])) {
        *place = b"0123456789abcdef"[usize::from(half)];
    }
    sum
}

fn moment(head: &[u8], at: usize) -> StoreTime {
    StoreTime::from_ms(i64::from_le_bytes(array(head, at)))
}

fn number(head: &[u8], at: usize) -> usize {
    u32::from_le_bytes(array(head, at)) as usize
}

fn array<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    let part = head[at..at + N].try_into();
    part.expect("the parts of a head have their lengths")
}

const fn damaged(what: &'static str) -> CodecError {
    CodecError::Damaged { what }
}

/// The format that the scripts write.
const FORMAT: u8 = 1;
const HEAD_BYTES: usize = 74;
/// Far below the 512 MiB that Redis takes for one value: a script copies it several times.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
