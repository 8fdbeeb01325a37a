//! From rows to records, and from records to columns.

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Kind, Type};

use super::value::Uuid;
use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::record::{Kept, KeyText, Record, Response, Revision, State, TakenFrom, Token, codec};
use crate::scope::{OperationId, Principal};
use crate::store::time::Told;
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
        1 => Said::Wrote(id(row, ID)?),
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

/// The columns of an answer that say whose it is, what was written of it, and what there is.
const ID: usize = 4;
const TOKEN: usize = 5;
const COUNT: usize = 6;
const RECORD: usize = 7;

/// The columns of a record, in the order of the table. Those that a later version adds come after these.
const COLUMNS: [&str; 27] = [
    "id",
    "token",
    "count",
    "first_claimed_at",
    "lease_ms",
    "quiet_ms",
    "ttl_ms",
    "lease_until",
    "unknown_since",
    "expires_at",
    "taken_at",
    "begun_bin",
    "attempt",
    "expiry_bin",
    "state",
    "format",
    "taken_from",
    "settled_by",
    "fingerprint_version",
    "fingerprint_canonical",
    "fingerprint_raw",
    "principal",
    "key",
    "route",
    "head",
    "body",
    "target",
];

/// Whether a column of an answer can be read: a record has its columns where they are looked for.
pub(super) fn reads(kind: &Type) -> bool {
    let Kind::Composite(fields) = kind.kind() else {
        return true;
    };
    let names = fields.iter().map(|field| field.name());
    names.take(COLUMNS.len()).eq(COLUMNS)
}

/// Their values.
struct Columns<'a>([Option<&'a [u8]>; COLUMNS.len()]);

impl<'a> FromSql<'a> for Columns<'a> {
    /// The number of columns, then each with its type and its length, which is negative where it is null.
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        let (mut columns, mut rest) = ([None; COLUMNS.len()], raw.get(4..).ok_or(SHORT)?);
        for column in &mut columns {
            let length = rest.get(4..8).ok_or(SHORT)?;
            rest = &rest[8..];
            let length = i32::from_be_bytes(length.try_into()?);
            if let Ok(length) = usize::try_from(length) {
                let value;
                (value, rest) = rest.split_at_checked(length).ok_or(SHORT)?;
                *column = Some(value);
            }
        }
        Ok(Self(columns))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(kind.kind(), Kind::Composite(_))
    }
}

impl<'a> Columns<'a> {
    /// The value at `place`; one of another length is an error.
    fn get<T: FromSql<'a>>(&self, place: usize) -> Result<T, BoxError> {
        T::from_sql_nullable(&Type::UNKNOWN, self.0[place])
    }
}

/// The record of a row, or why it is none of ours.
fn record(row: &Row) -> Result<Record, BoxError> {
    let columns: Columns<'_> = row.try_get(RECORD)?;
    let format: i16 = columns.get(15)?;
    if format != FORMAT {
        return Err(format!("its format is {format}, and this build knows {FORMAT}").into());
    }
    Ok(Record {
        token: Token::from_bytes(columns.get::<Uuid>(1)?.0),
        count: u64::try_from(columns.get::<i64>(2)?)?,
        first_claimed_at: StoreTime::from_ms(columns.get(3)?),
        lease_ms: columns.get(4)?,
        quiet_ms: columns.get(5)?,
        ttl_ms: columns.get(6)?,
        state: state(&columns)?,
        taken_from: taken_from(columns.get(16)?, columns.get(10)?)?,
        attempt: positive(columns.get(12)?)?,
        fingerprint: Fingerprint {
            version: u8::try_from(columns.get::<i16>(18)?)?,
            canonical: columns.get::<&[u8]>(19)?.try_into()?,
            raw: columns.get::<&[u8]>(20)?.try_into()?,
        },
        principal: Principal::from_bytes(columns.get::<&[u8]>(21)?.try_into()?),
        key: KeyText::new(columns.get::<&str>(22)?),
        route: columns.get::<&str>(23)?.into(),
        target: columns.get::<&str>(26)?.into(),
    })
}

fn positive(attempt: i32) -> Result<u32, BoxError> {
    match u32::try_from(attempt)? {
        0 => Err("its attempt is 0".into()),
        attempt => Ok(attempt),
    }
}

fn state(columns: &Columns<'_>) -> Result<State, BoxError> {
    let at = |place| columns.get(place).map(StoreTime::from_ms);
    match columns.get::<i16>(14)? {
        RUNNING => Ok(State::Running { lease_until: at(7)? }),
        UNKNOWN => Ok(State::Unknown { since: at(8)? }),
        RELEASED => Ok(State::Released { expires_at: at(9)? }),
        COMPLETED => {
            let settled_by = u8::try_from(columns.get::<i16>(17)?)?;
            let body =
                columns.get::<Option<&[u8]>>(25)?.map_or_else(Bytes::new, Bytes::copy_from_slice);
            let response = codec::decode_head(columns.get(24)?, body)?;
            Ok(State::Completed {
                expires_at: at(9)?,
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

/// The revision of an id that was written, where the statement tells it.
pub(super) fn revision(row: &Row) -> Option<Revision> {
    let token: Uuid = row.try_get(TOKEN).ok()?;
    let count: i64 = row.try_get(COUNT).ok()?;
    Some(Revision { token: Token::from_bytes(token.0), count: count.cast_unsigned() })
}

const SHORT: &str = "its row is too short";
