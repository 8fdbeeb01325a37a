//! What the scripts answer.

use std::ops::ControlFlow;
use std::time::Duration;

use ::redis::{FromRedisValue, Value, from_redis_value};

use super::keys::to_cursor;
use super::record_value;
use crate::clock::StoreTime;
use crate::record::{Revision, Token};
use crate::scope::OperationId;
use crate::store::cas::{self, Put};
use crate::store::{Beat, BoxError, Draft, Fault, Guard, Next, Page, Seen, StoreError, Swap};

/// The answer of a script about one record.
pub(super) struct Reply {
    /// The time of the answer.
    pub(super) now: StoreTime,
    wrote: bool,
    /// The token and the count of what was written; else the value that is stored, `None` if the record is absent.
    what: Option<Vec<u8>>,
}

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self, Fault> {
        let (now, wrote, what) = understood(value)?;
        Ok(Self { now: StoreTime::from_ms(now), wrote, what })
    }

    /// The record of `id` as the script saw it, by the claim of `draft` if it was one.
    pub(super) fn seen(&self, id: OperationId, draft: Option<&Draft>) -> Result<Seen, Fault> {
        let record = self.what.as_deref().map(|value| record_value::decode(id, value));
        let record = record.transpose().map_err(unreadable)?;
        let mine = draft.is_some_and(|draft| cas::is_mine(record.as_ref(), draft));
        Ok(Seen { record, mine, now: self.now })
    }

    /// What became of a swap; or what it is to put in the place of the record that the script saw.
    pub(super) fn swap(
        &self,
        id: OperationId,
        guard: &Guard,
        to: &Next,
    ) -> Result<ControlFlow<Swap, Put>, Fault> {
        match self.wrote {
            true => Ok(ControlFlow::Break(Swap::Done(self.revision()?))),
            false => Ok(cas::judge(self.seen(id, None)?, guard, to)),
        }
    }

    pub(super) fn beat(&self, id: OperationId) -> Beat {
        match self.wrote {
            true => Beat::Kept,
            false => self.seen(id, None).map_or(Beat::Unsure, |_| Beat::Lost),
        }
    }

    fn revision(&self) -> Result<Revision, Fault> {
        let written = self.what.as_deref().unwrap_or_default();
        let (token, count) = written.split_first_chunk().ok_or_else(not_understood)?;
        let count = count.try_into().map_err(|_| not_understood())?;
        Ok(Revision { token: Token::from_bytes(*token), count: u64::from_le_bytes(count) })
    }
}

/// The answer of the scan. A record that cannot be read is left out: a load of it is an error.
pub(super) fn page(value: Value) -> Result<Page, Fault> {
    type Found = Vec<(String, Vec<u8>)>;
    let (now, has_more, number, place, found): (_, bool, _, _, Found) = understood(value)?;
    let records = found.into_iter().filter_map(|(id, value)| {
        let id = id.parse().ok()?;
        Some((id, record_value::decode(id, &value).ok()?))
    });
    let next = has_more.then(|| to_cursor(number, place));
    Ok(Page { records: records.collect(), next, now: StoreTime::from_ms(now) })
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
