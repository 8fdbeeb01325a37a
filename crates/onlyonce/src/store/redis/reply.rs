//! What the scripts answer, and what an answer that did not come means.

use std::time::Duration;

use ::redis::Value;

use super::Shared;
use super::epochs::Heard;
use super::link::Trouble;
use super::value;
use crate::clock::StoreTime;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::{Beat, Draft, Fault, Guard, Page, Seen, StoreError, Swap, Swept, cas};

/// The answer of a script about one record.
pub(super) struct Answer {
    now: StoreTime,
    clock_held: bool,
    kind: i64,
    parts: Vec<Value>,
}

impl Shared {
    /// The answer, with its time taken note of.
    pub(super) fn answer(&self, value: Value, asked_at: Duration) -> Result<Answer, Fault> {
        let Value::Array(mut parts) = value else {
            return Err(Fault::Unsure(not_understood()));
        };
        let [now, held, epoch, kind] =
            numbers(&parts).ok_or_else(|| Fault::Unsure(not_understood()))?;
        let now = StoreTime::from_ms(now);
        let heard = Heard { now, clock_held: held != 0, epoch };
        let clock_held = self.answers.tell(heard, asked_at) || self.is_doubtful();
        let parts = parts.split_off(4);
        Ok(Answer { now, clock_held, kind, parts })
    }
}

impl Answer {
    /// The page, and the last id that was looked at if there was no more room.
    pub(super) fn page(self) -> (Page, Option<OperationId>) {
        let mut parts = self.parts.into_iter();
        let last = parts.next().and_then(|last| bytes(&last)?.try_into().ok());
        let mut records = Vec::new();
        while let (Some(id), Some(value)) = (parts.next(), parts.next()) {
            let id = bytes(&id).and_then(|id| id.try_into().ok()).map(OperationId::from_bytes);
            // What does not read is left out: its own look-up says so.
            if let (Some(id), Some(value)) = (id, bytes(&value))
                && let Ok(record) = value::decode(id, value)
            {
                records.push((id, record));
            }
        }
        let is_full = self.kind != 0;
        let last = last.map(OperationId::from_bytes).filter(|_| is_full);
        let page = Page { records, next: None, now: self.now };
        (page, last)
    }
    /// What was seen of `id`, by the claim of `draft` if it was one.
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
            (THERE, Some(value)) => value::decode(id, value)
                .map(Some)
                .map_err(|error| Fault::NotDone(StoreError::Unreadable(error.into()))),
            (UNREADABLE, _) => Err(Fault::NotDone(StoreError::Unreadable(NOT_A_RECORD.into()))),
            _ => Err(Fault::Unsure(not_understood())),
        }
    }

    fn revision(&self) -> Result<Revision, Fault> {
        let part = |at: usize| self.parts.get(at).and_then(bytes);
        let token = part(0).and_then(|token| token.try_into().ok()).map(Token::from_bytes);
        let count = part(1).and_then(|count| count.try_into().ok()).map(u64::from_le_bytes);
        let revision = token.zip(count).map(|(token, count)| Revision { token, count });
        revision.ok_or_else(|| Fault::Unsure(not_understood()))
    }
}

pub(super) fn swept(value: &Value) -> Result<Swept, Fault> {
    let [deleted, more] = all_numbers(value)?;
    Ok(Swept { deleted: usize::try_from(deleted).unwrap_or(0), more: more != 0 })
}

/// The time of an answer that has nothing else to say.
pub(super) fn heard(value: &Value) -> Result<Heard, Fault> {
    let [now, held, epoch] = all_numbers(value)?;
    Ok(Heard { now: StoreTime::from_ms(now), clock_held: held != 0, epoch })
}

/// The check value that is kept, if any is.
pub(super) fn check_value(value: &Value) -> Result<Option<String>, Fault> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => match String::from_utf8(bytes.clone()) {
            Ok(kept) => Ok(Some(kept)),
            Err(error) => Err(Fault::NotDone(StoreError::Unreadable(error.into()))),
        },
        _ => Err(Fault::Unsure(not_understood())),
    }
}

/// A deletion leaves no record to ask; its name follows from the guard.
fn deletion(guard: Guard) -> Revision {
    let token = match guard {
        Guard::Owner { token, .. } | Guard::Unchanged(Revision { token, .. }) => token,
    };
    Revision { token, count: u64::MAX }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Full => Self::NotDone(StoreError::Busy),
            Trouble::Closed => Self::NotDone(StoreError::Closed),
            Trouble::NotSent(why) | Trouble::Refused(why) => {
                Self::NotDone(StoreError::Unavailable(why))
            }
            Trouble::Unanswered(why) => Self::Unsure(StoreError::Unavailable(why)),
        }
    }
}

fn all_numbers<const N: usize>(value: &Value) -> Result<[i64; N], Fault> {
    let numbers = match value {
        Value::Array(parts) => numbers(parts),
        _ => None,
    };
    numbers.ok_or_else(|| Fault::Unsure(not_understood()))
}

fn numbers<const N: usize>(parts: &[Value]) -> Option<[i64; N]> {
    let number = |part: &Value| match part {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    let numbers: Vec<i64> = parts.get(..N)?.iter().map(number).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

fn bytes(part: &Value) -> Option<&[u8]> {
    match part {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn not_understood() -> StoreError {
    StoreError::Unavailable("Redis answered something else than the script does".into())
}

const ABSENT: i64 = 0;
const THERE: i64 = 1;
const UNREADABLE: i64 = 2;
const DONE: i64 = 3;
const DELETED: i64 = 4;
const NOT_A_RECORD: &str = "what is stored under its key is not a record of ours, or is damaged";
