//! From rows to records, and from records to columns.

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::time::Told;
use super::value::Uuid;
use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::record::{Kept, KeyText, Record, Response, Revision, State, TakenFrom, Token, codec};
use crate::scope::{OperationId, Principal};
use crate::store::{BoxError, StoreError};

/// What a row of an answer says.
pub(super) enum Said {
    /// The time.
    Time(Told),
    /// This id was written.
    Wrote(OperationId),
    /// This is there; or something that does not read.
    There(OperationId, Box<Result<Record, StoreError>>),
}

/// Reads a row of the shape that every statement has. `Err`: not even whose row it is.
pub(super) fn said(row: &Row) -> Result<Said, BoxError> {
    Ok(match row.try_get::<_, i16>(0)? {
        0 => Said::Time(told(row, 1)?),
        1 | REVISED => Said::Wrote(id(row, ID)?),
        _ => Said::There(id(row, ID)?, Box::new(record(row).map_err(StoreError::Unreadable))),
    })
}

/// The time, in three columns from `first`.
pub(super) fn told(row: &Row, first: usize) -> Result<Told, BoxError> {
    Ok(Told {
        now: StoreTime::from_ms(row.try_get(first)?),
        clock_held: row.try_get(first + 1)?,
        confirmed: row.try_get(first + 2)?,
    })
}

pub(super) fn id(row: &Row, column: usize) -> Result<OperationId, BoxError> {
    Ok(OperationId::from_bytes(row.try_get::<_, Uuid>(column)?.0))
}

/// Where the record's columns begin.
pub(super) const ID: usize = 4;

/// The record of a row, or why it is none of ours.
fn record(row: &Row) -> Result<Record, BoxError> {
    let format: i16 = column(row, 2)?;
    if format != FORMAT {
        return Err(format!("its format is {format}, and this build knows {FORMAT}").into());
    }
    let count: i64 = column(row, 4)?;
    Ok(Record {
        token: Token::from_bytes(column::<Uuid>(row, 3)?.0),
        count: u64::try_from(count)?,
        attempt: positive(column(row, 5)?)?,
        state: state(row)?,
        taken_from: taken_from(column(row, 6)?, column(row, 7)?)?,
        key: KeyText::new(column::<&str>(row, 8)?),
        fingerprint: Fingerprint {
            version: u8::try_from(column::<i16>(row, 9)?)?,
            canonical: column::<&[u8]>(row, 10)?.try_into()?,
            raw: column::<&[u8]>(row, 11)?.try_into()?,
        },
        principal: Principal::from_bytes(column::<&[u8]>(row, 12)?.try_into()?),
        route: column::<&str>(row, 13)?.into(),
        first_claimed_at: StoreTime::from_ms(column(row, 14)?),
        lease_ms: column(row, 15)?,
        quiet_ms: column(row, 16)?,
        ttl_ms: column(row, 17)?,
    })
}

fn positive(attempt: i32) -> Result<u32, BoxError> {
    match u32::try_from(attempt)? {
        0 => Err("its attempt is 0".into()),
        attempt => Ok(attempt),
    }
}

fn state(row: &Row) -> Result<State, BoxError> {
    let at = |place| column(row, place).map(StoreTime::from_ms);
    match column::<i16>(row, 1)? {
        RUNNING => Ok(State::Running { lease_until: at(18)? }),
        UNKNOWN => Ok(State::Unknown { since: at(19)? }),
        RELEASED => Ok(State::Released { expires_at: at(20)? }),
        COMPLETED => {
            let settled_by = u8::try_from(column::<i16>(row, 21)?)?;
            let body =
                column::<Option<&[u8]>>(row, 23)?.map_or_else(Bytes::new, Bytes::copy_from_slice);
            let response = codec::decode_head(column(row, 22)?, body)?;
            Ok(State::Completed {
                expires_at: at(20)?,
                settled_by: codec::settled_by(settled_by)?,
                response: response.into(),
            })
        }
        state => Err(format!("its state is {state}").into()),
    }
}

fn taken_from(state: Option<i16>, at: Option<i64>) -> Result<Option<TakenFrom>, BoxError> {
    let at = at.map(StoreTime::from_ms);
    match (state, at) {
        (None, None) => Ok(None),
        (Some(UNKNOWN), Some(since)) => Ok(Some(TakenFrom::Unknown { since })),
        (Some(RELEASED), Some(expires_at)) => Ok(Some(TakenFrom::Released { expires_at })),
        _ => Err("it was taken from nothing known".into()),
    }
}

fn column<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Result<T, BoxError> {
    Ok(row.try_get(ID + place)?)
}

/// The columns of a state: its number, then `lease_until`, `unknown_since` and `expires_at`.
pub(super) fn state_columns(state: &State) -> (i16, [Option<i64>; 3]) {
    let at = |at: &StoreTime| Some(at.as_ms());
    match state {
        State::Running { lease_until } => (RUNNING, [at(lease_until), None, None]),
        State::Unknown { since } => (UNKNOWN, [None, at(since), None]),
        State::Released { expires_at } => (RELEASED, [None, None, at(expires_at)]),
        State::Completed { expires_at, .. } => (COMPLETED, [None, None, at(expires_at)]),
    }
}

/// The columns of where an attempt was taken from.
pub(super) fn taken_columns(taken_from: Option<TakenFrom>) -> (Option<i16>, Option<i64>) {
    match taken_from {
        None => (None, None),
        Some(TakenFrom::Unknown { since }) => (Some(UNKNOWN), Some(since.as_ms())),
        Some(TakenFrom::Released { expires_at }) => (Some(RELEASED), Some(expires_at.as_ms())),
    }
}

/// The body as its column holds it; none if it is not kept.
pub(super) fn body_column(response: &Response) -> Option<&[u8]> {
    match &response.body {
        Kept::Bytes { body, .. } => Some(body),
        Kept::No(_) => None,
    }
}

/// The format of the rows that this build writes.
const FORMAT: i16 = 1;
pub(super) const RUNNING: i16 = 1;
pub(super) const UNKNOWN: i16 = 2;
pub(super) const RELEASED: i16 = 3;
pub(super) const COMPLETED: i16 = 4;

/// The revision of an id that was written, where the statement tells it: beside the id, or in the columns of a
/// record.
pub(super) fn revision(row: &Row) -> Option<Revision> {
    let is_wide = row.try_get::<_, i16>(0).ok()? == REVISED;
    let first = ID + if is_wide { 3 } else { 1 };
    let token: Uuid = row.try_get(first).ok()?;
    let count: i64 = row.try_get(first + 1).ok()?;
    Some(Revision { token: Token::from_bytes(token.0), count: count.cast_unsigned() })
}

/// The kind of a row that has an id and its revision in the columns of a record.
const REVISED: i16 = 3;
