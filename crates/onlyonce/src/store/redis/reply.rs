//! What the scripts answer, and which fault it is when there is no answer.

use ::redis::Value;

use super::keys::from_hex;
use super::link::CallError;
use super::record_value;
use super::scan_position::Position;
use crate::clock::StoreTime;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::{Beat, Draft, Fault, Guard, Seen, StoreError, Swap, cas};

/// The answer of a script about one record.
pub(super) struct Reply {
    now: StoreTime,
    kind: i64,
    parts: Vec<Value>,
}

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self, Fault> {
        let ([now, kind], parts) = numbers(value)?;
        Ok(Self { now: StoreTime::from_ms(now), kind, parts })
    }

    /// The record of `id` as the script saw it, by the claim of `draft` if it was one.
    pub(super) fn seen(&self, id: OperationId, draft: Option<&Draft>) -> Result<Seen, Fault> {
        let record = self.record(id)?;
        let mine = draft.is_some_and(|draft| cas::is_mine(record.as_ref(), draft));
        Ok(Seen { record, mine, now: self.now })
    }

    pub(super) fn swap(&self, id: OperationId, guard: Guard) -> Result<Swap, Fault> {
        match self.kind {
            DONE => self.revision().map(Swap::Done),
            DELETED => Ok(Swap::Done(deletion(guard))),
            _ => Ok(Swap::Stale(Box::new(self.seen(id, None)?))),
        }
    }

    pub(super) fn beat(&self) -> Beat {
        match self.kind {
            DONE => Beat::Kept,
            ABSENT => Beat::Lost,
            _ => Beat::Unsure,
        }
    }

    fn record(&self, id: OperationId) -> Result<Option<Record>, Fault> {
        match (self.kind, self.parts.first().and_then(bytes)) {
            (ABSENT, _) => Ok(None),
            (FOUND, Some(value)) => record_value::decode(id, value)
                .map(Some)
                .map_err(|error| Fault::NotDone(StoreError::Unreadable(error.into()))),
            (UNREADABLE, _) => Err(Fault::NotDone(StoreError::Unreadable(NOT_A_RECORD.into()))),
            _ => Err(not_understood()),
        }
    }

    fn revision(&self) -> Result<Revision, Fault> {
        let part = |at: usize| self.parts.get(at).and_then(bytes);
        let token = part(0).and_then(|token| token.try_into().ok()).map(Token::from_bytes);
        let count = part(1).and_then(|count| count.try_into().ok()).map(u64::from_le_bytes);
        let revision = token.zip(count).map(|(token, count)| Revision { token, count });
        revision.ok_or_else(not_understood)
    }
}

/// The answer of the scan.
pub(super) struct Listed {
    pub(super) now: StoreTime,
    pub(super) records: Vec<(OperationId, Record)>,
    /// Where this listing goes on; `None` at its end.
    pub(super) next: Option<Position>,
}

impl Listed {
    /// A record that cannot be read is left out: whoever loads it is told.
    pub(super) fn read(value: Value, from: Position) -> Result<Self, Fault> {
        let ([now, has_more, number, place], parts) = numbers(value)?;
        let next = Position { number: number.unsigned_abs(), place: place.unsigned_abs(), ..from };
        let pairs = parts.chunks_exact(2);
        let records = pairs.filter_map(|pair| {
            let (id, value) = (from_hex(bytes(&pair[0])?)?, bytes(&pair[1])?);
            Some((id, record_value::decode(id, value).ok()?))
        });
        let (records, next) = (records.collect(), (has_more != 0).then_some(next));
        Ok(Self { now: StoreTime::from_ms(now), records, next })
    }
}

/// The check value that is kept, if any is.
pub(super) fn check_value(value: Value) -> Result<Option<String>, Fault> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => match String::from_utf8(bytes) {
            Ok(kept) => Ok(Some(kept)),
            Err(error) => Err(Fault::NotDone(StoreError::Unreadable(error.into()))),
        },
        _ => Err(not_understood()),
    }
}

/// A deletion leaves no record, so that its revision follows from the guard.
fn deletion(guard: Guard) -> Revision {
    let token = match guard {
        Guard::Owner { token, .. } | Guard::Unchanged(Revision { token, .. }) => token,
    };
    Revision { token, count: u64::MAX }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Busy => Self::NotDone(StoreError::Busy),
            CallError::Closed => Self::NotDone(StoreError::Closed),
            CallError::NotSent(why) | CallError::Refused(why) => {
                Self::NotDone(StoreError::Unavailable(why))
            }
            CallError::Unanswered(why) => Self::Unsure(StoreError::Unavailable(why)),
        }
    }
}

/// The numbers that an answer begins with, and the rest of it.
fn numbers<const N: usize>(value: Value) -> Result<([i64; N], Vec<Value>), Fault> {
    let Value::Array(mut parts) = value else {
        return Err(not_understood());
    };
    let number = |part: &Value| match part {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    let numbers = parts.get(..N).and_then(|parts| parts.iter().map(number).collect());
    let numbers: Vec<i64> = numbers.ok_or_else(not_understood)?;
    let rest = parts.split_off(N);
    Ok((numbers.try_into().map_err(|_| not_understood())?, rest))
}

fn bytes(part: &Value) -> Option<&[u8]> {
    match part {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// The script ran, and nobody knows what it did.
fn not_understood() -> Fault {
    let why = "Redis answered something else than the script does";
    Fault::Unsure(StoreError::Unavailable(why.into()))
}

const ABSENT: i64 = 0;
const FOUND: i64 = 1;
const UNREADABLE: i64 = 2;
const DONE: i64 = 3;
const DELETED: i64 = 4;
const NOT_A_RECORD: &str = "what is stored under its key is not a record of ours, or is damaged";
