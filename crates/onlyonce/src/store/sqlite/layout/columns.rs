//! A record as the columns of a row, for writing and for reading, and the checksum over them.

use std::sync::Arc;

use rusqlite::Row;
use rusqlite::types::FromSqlError;

use crate::clock::StoreTime;
use crate::fingerprint::Fingerprint;
use crate::record::{KeyText, Record, SettledBy, State, TakenFrom, Token, codec};
use crate::scope::{OperationId, Principal};
use crate::store::sqlite::layout::schema::{COMPLETED, GONE, RELEASED, RUNNING, UNKNOWN};

/// A row of a record table without its row number.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    pub(crate) id: &'a [u8; 16],
    pub(crate) state: i64,
    /// The time of the state: `lease_until`, `unknown_since` or `expires_at`. Each state has its own column.
    pub(crate) at: i64,
    /// 0 if the record is not completed.
    pub(crate) settled_by: i64,
    /// The row number of the response. Before there is one: a number of the same width.
    pub(crate) response: i64,
    pub(crate) token: &'a [u8; 16],
    pub(crate) count: i64,
    pub(crate) attempt: i64,
    /// The state that this attempt was taken from; 0 if none.
    pub(crate) taken_from: i64,
    pub(crate) taken_at: i64,
    pub(crate) first_claimed_at: i64,
    pub(crate) lease_ms: i64,
    pub(crate) quiet_ms: i64,
    pub(crate) ttl_ms: i64,
    pub(crate) version: i64,
    pub(crate) canonical: &'a [u8; 32],
    pub(crate) raw: &'a [u8; 32],
    pub(crate) principal: &'a [u8; 32],
    pub(crate) key: &'a str,
    pub(crate) target: &'a str,
}

impl<'a> Columns<'a> {
    pub(crate) fn new(id: &'a OperationId, record: &'a Record, response: i64) -> Self {
        let (state, at, settled_by) = state_columns(&record.state);
        let (taken_from, taken_at) = taken_columns(record.taken_from);
        Self {
            id: id.as_bytes(),
            state,
            at,
            settled_by,
            response,
            token: record.token.as_bytes(),
            count: record.count.cast_signed(),
            attempt: record.attempt.into(),
            taken_from,
            taken_at,
            first_claimed_at: record.first_claimed_at.as_ms(),
            lease_ms: record.lease_ms,
            quiet_ms: record.quiet_ms,
            ttl_ms: record.ttl_ms,
            version: record.fingerprint.version.into(),
            canonical: &record.fingerprint.canonical,
            raw: &record.fingerprint.raw,
            principal: record.principal.as_bytes(),
            key: record.key.as_str(),
            target: &record.target,
        }
    }

    /// Reads what [`COLUMNS`] selected. Returns the row number of the route and the stored checksums beside it.
    pub(crate) fn read(row: &'a Row<'_>) -> Result<(Self, i64, &'a [u8]), BadValue> {
        let state = number(row, 1)?;
        let columns = Self {
            id: bytes(row, 0)?,
            state,
            at: moment(row, state)?,
            settled_by: number(row, 13)?,
            response: number(row, 14)?,
            token: bytes(row, 8)?,
            count: number(row, 9)?,
            attempt: number(row, 10)?,
            taken_from: number(row, 11)?,
            taken_at: number(row, 12)?,
            first_claimed_at: number(row, 3)?,
            lease_ms: number(row, 15)?,
            quiet_ms: number(row, 16)?,
            ttl_ms: number(row, 6)?,
            version: number(row, 18)?,
            canonical: bytes(row, 19)?,
            raw: bytes(row, 20)?,
            principal: bytes(row, 21)?,
            key: text(row, 22)?,
            target: text(row, 23)?,
        };
        let crc = row.get_ref(2).map_err(|_| BadValue)?.as_blob()?;
        Ok((columns, number(row, 17)?, crc))
    }

    /// Two checksums of four bytes: [`id_crc`], and one over every column and the text of the route.
    pub(crate) fn crc(&self, route: &str) -> [u8; 8] {
        let whole = self.whole_crc(route).to_le_bytes();
        let [a, b, c, d] = id_crc(self.id, self.state);
        let [e, f, g, h] = whole;
        [a, b, c, d, e, f, g, h]
    }

    fn whole_crc(&self, route: &str) -> u32 {
        let response = if self.state == COMPLETED { self.response } else { 0 };
        let numbers = [
            self.state,
            self.at,
            self.settled_by,
            response,
            self.count,
            self.attempt,
            self.taken_from,
            self.taken_at,
            self.first_claimed_at,
            self.lease_ms,
            self.quiet_ms,
            self.ttl_ms,
            self.version,
            self.key.len() as i64,
            self.target.len() as i64,
        ];
        let numbers = numbers.map(i64::to_le_bytes);
        let (key, target) = (self.key.as_bytes(), self.target.as_bytes());
        let digests = [&self.id[..], self.token, self.canonical, self.raw, self.principal];
        let parts =
            digests.into_iter().chain([numbers.as_flattened(), key, target, route.as_bytes()]);
        parts.fold(0, crc32c::crc32c_append)
    }

    /// The record. The caller has compared the checksum.
    pub(crate) fn record(&self, route: Arc<str>, state: State) -> Result<Record, BadValue> {
        Ok(Record {
            token: Token::from_bytes(*self.token),
            count: self.count.cast_unsigned(),
            attempt: u32::try_from(self.attempt).map_err(|_| BadValue)?,
            state,
            taken_from: taken_from(self.taken_from, self.taken_at)?,
            key: KeyText::new(self.key),
            fingerprint: Fingerprint {
                version: u8::try_from(self.version).map_err(|_| BadValue)?,
                canonical: *self.canonical,
                raw: *self.raw,
            },
            principal: Principal::from_bytes(*self.principal),
            route,
            target: self.target.into(),
            first_claimed_at: StoreTime::from_ms(self.first_claimed_at),
            lease_ms: self.lease_ms,
            quiet_ms: self.quiet_ms,
            ttl_ms: self.ttl_ms,
        })
    }

    pub(crate) fn settled_by(&self) -> Result<SettledBy, BadValue> {
        let tag = u8::try_from(self.settled_by).map_err(|_| BadValue)?;
        codec::settled_by(tag).map_err(|_| BadValue)
    }

    /// The time of the state if the state is one of `states`: the value of the column that belongs to them.
    pub(crate) fn at_if(&self, states: &[i64]) -> Option<i64> {
        states.contains(&self.state).then_some(self.at)
    }
}

/// The checksum over id and state alone. The scan at open reads it, and it tells the id of a row that is damaged elsewhere.
pub(crate) fn id_crc(id: &[u8; 16], state: i64) -> [u8; 4] {
    let mut bytes = [0; 17];
    bytes[..16].copy_from_slice(id);
    bytes[16] = state as u8;
    crc32c::crc32c(&bytes).to_le_bytes()
}

/// The columns that [`Columns::read`] expects.
pub(crate) const COLUMNS: &str = "r.id, r.state, r.crc, r.first_claimed_at, r.unknown_since, r.expires_at, \
    r.ttl_ms, r.lease_until, r.token, r.count, r.attempt, r.taken_from, r.taken_at, r.settled_by, r.response, \
    r.lease_ms, r.quiet_ms, r.route, r.fingerprint_version, r.fingerprint_canonical, r.fingerprint_raw, \
    r.principal, r.key, r.target";
/// The number of columns in [`COLUMNS`].
pub(crate) const COLUMN_COUNT: usize = 24;

/// A column has a value that this code never writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadValue;

impl From<FromSqlError> for BadValue {
    fn from(_: FromSqlError) -> Self {
        Self
    }
}

fn state_columns(state: &State) -> (i64, i64, i64) {
    match state {
        State::Running { lease_until } => (RUNNING, lease_until.as_ms(), 0),
        State::Unknown { since } => (UNKNOWN, since.as_ms(), 0),
        State::Released { expires_at } => (RELEASED, expires_at.as_ms(), 0),
        State::Completed { expires_at, settled_by, .. } => {
            (COMPLETED, expires_at.as_ms(), codec::settled_by_tag(*settled_by).into())
        }
    }
}

fn taken_columns(taken_from: Option<TakenFrom>) -> (i64, i64) {
    match taken_from {
        None => (0, 0),
        Some(TakenFrom::Unknown { since }) => (UNKNOWN, since.as_ms()),
        Some(TakenFrom::Released { expires_at }) => (RELEASED, expires_at.as_ms()),
    }
}

fn taken_from(state: i64, at: i64) -> Result<Option<TakenFrom>, BadValue> {
    let at = StoreTime::from_ms(at);
    match state {
        0 => Ok(None),
        UNKNOWN => Ok(Some(TakenFrom::Unknown { since: at })),
        RELEASED => Ok(Some(TakenFrom::Released { expires_at: at })),
        _ => Err(BadValue),
    }
}

fn moment(row: &Row<'_>, state: i64) -> Result<i64, BadValue> {
    match state {
        RUNNING => number(row, 7),
        UNKNOWN => number(row, 4),
        RELEASED | COMPLETED => number(row, 5),
        GONE => Ok(0),
        _ => Err(BadValue),
    }
}

/// NULL reads as 0. Where NULL and 0 differ, the state says which of them it is, and the checksum covers the state.
fn number(row: &Row<'_>, column: usize) -> Result<i64, BadValue> {
    let value = row.get_ref(column).map_err(|_| BadValue)?;
    Ok(value.as_i64_or_null()?.unwrap_or(0))
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, BadValue> {
    Ok(row.get_ref(column).map_err(|_| BadValue)?.as_str()?)
}

fn bytes<'a, const N: usize>(row: &'a Row<'_>, column: usize) -> Result<&'a [u8; N], BadValue> {
    let value = row.get_ref(column).map_err(|_| BadValue)?;
    value.as_blob()?.try_into().map_err(|_| BadValue)
}
