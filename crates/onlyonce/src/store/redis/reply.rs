//! What the scripts answer.

use std::time::Duration;

use ::redis::{FromRedisValue, Value, from_redis_value};

use super::keys::from_hex;
use super::record_value;
use super::scan_position::Position;
use crate::clock::StoreTime;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::{Beat, BoxError, Draft, Fault, Guard, Page, Seen, StoreError, Swap, cas};

/// The answer of a script about one record.
pub(super) struct Reply {
    now: StoreTime,
    kind: i64,
    /// The value that is stored, or the token that it has after a write.
    first: Vec<u8>,
    /// The count that it has after a write.
    second: Vec<u8>,
}

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self, Fault> {
        let (now, kind, first, second) = understood(value)?;
        Ok(Self { now: StoreTime::from_ms(now), kind, first, second })
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
            DELETED => Ok(Swap::Done(cas::deletion(&guard))),
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
        match self.kind {
            ABSENT => Ok(None),
            FOUND => record_value::decode(id, &self.first).map(Some).map_err(unreadable),
            UNREADABLE => Err(unreadable("its key holds no record, or a damaged one")),
            _ => Err(not_understood()),
        }
    }

    fn revision(&self) -> Result<Revision, Fault> {
        let token = <[u8; 16]>::try_from(self.first.as_slice()).map(Token::from_bytes);
        let count = <[u8; 8]>::try_from(self.second.as_slice()).map(u64::from_le_bytes);
        let (Ok(token), Ok(count)) = (token, count) else {
            return Err(not_understood());
        };
        Ok(Revision { token, count })
    }
}

/// The answer of the scan, and where its listing goes on. A record that cannot be read is left out: a load of it is an
/// error.
pub(super) fn page(value: Value, from: Position) -> Result<(Page, Option<Position>), Fault> {
    let (now, has_more, number, place, found): (_, bool, _, _, Vec<Vec<u8>>) = understood(value)?;
    let records = found.chunks_exact(2).filter_map(|pair| {
        let id = from_hex(&pair[0])?;
        Some((id, record_value::decode(id, &pair[1]).ok()?))
    });
    let page = Page { records: records.collect(), next: None, now: StoreTime::from_ms(now) };
    Ok((page, has_more.then_some(Position { number, place, ..from })))
}

/// How long to wait before a limit may be used again; `None` if it was used.
pub(crate) fn wait(value: Value) -> Result<Option<Duration>, Fault> {
    let micros: u64 = understood(value)?;
    Ok((micros > 0).then(|| Duration::from_micros(micros)))
}

/// The check value that is kept, if any is.
pub(super) fn check_value(value: Value) -> Result<Option<String>, Fault> {
    let kept: Option<Vec<u8>> = understood(value)?;
    kept.map(|kept| String::from_utf8(kept).map_err(unreadable)).transpose()
}

/// An answer that is not what the script answers is unsure: nobody knows what was done.
pub(super) fn understood<T: FromRedisValue>(value: Value) -> Result<T, Fault> {
    from_redis_value(value).map_err(|_| not_understood())
}

fn not_understood() -> Fault {
    let why = "Redis answered something else than the script does";
    Fault::Unsure(StoreError::Unavailable(why.into()))
}

fn unreadable(why: impl Into<BoxError>) -> Fault {
    Fault::NotDone(StoreError::Unreadable(why.into()))
}

const ABSENT: i64 = 0;
const FOUND: i64 = 1;
const UNREADABLE: i64 = 2;
const DONE: i64 = 3;
const DELETED: i64 = 4;
