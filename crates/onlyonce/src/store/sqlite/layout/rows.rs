//! Writes and reads the rows of records and responses, each with its checksum.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, Row, params};

use crate::clock::StoreTime;
use crate::record::{Record, Response, State, codec};
use crate::scope::OperationId;
use crate::store::sqlite::layout::columns::{BadValue, COLUMN_COUNT, Columns, id_crc};
use crate::store::sqlite::layout::place::Place;
use crate::store::sqlite::layout::routes::Routes;
use crate::store::sqlite::layout::schema::{COMPLETED, GONE, RELEASED, RUNNING, UNKNOWN};
use crate::store::sqlite::layout::statements::Statements;
use crate::store::{BoxError, StoreError};

/// Inserts the record at `place`. `response` is the row number that the next response gets: it reserves the width.
pub(crate) fn append(
    db: &Connection,
    place: Place,
    id: OperationId,
    record: &Record,
    (route, response): (i64, i64),
) -> rusqlite::Result<()> {
    let columns = Columns::new(&id, record, response);
    let mut statement = db.prepare_cached(&Statements::of(place.class).append)?;
    statement.execute(params![
        place.row,
        columns.id,
        columns.state,
        columns.crc(&record.route),
        columns.first_claimed_at,
        columns.at_if(&[UNKNOWN]),
        columns.at_if(&[COMPLETED, RELEASED]),
        columns.ttl_ms,
        columns.at_if(&[RUNNING]),
        columns.token,
        columns.count,
        columns.attempt,
        nonzero(columns.taken_from),
        nonzero(columns.taken_from).map(|_| columns.taken_at),
        nonzero(columns.settled_by),
        columns.response,
        columns.lease_ms,
        columns.quiet_ms,
        route,
        columns.version,
        columns.canonical,
        columns.raw,
        columns.principal,
        columns.key,
        columns.target,
    ])?;
    Ok(())
}

/// Updates the row of a record that is not completed.
pub(crate) fn update(
    db: &Connection,
    place: Place,
    id: OperationId,
    record: &Record,
) -> rusqlite::Result<()> {
    let columns = Columns::new(&id, record, 0);
    let mut statement = db.prepare_cached(&Statements::of(place.class).update)?;
    let changed = statement.execute(params![
        place.row,
        columns.state,
        columns.crc(&record.route),
        columns.at_if(&[UNKNOWN]),
        columns.at_if(&[RELEASED]),
        columns.at_if(&[RUNNING]),
        columns.token,
        columns.count,
    ])?;
    one_row(changed)
}

/// Inserts the response and updates the row of the record to completed.
pub(crate) fn settle(
    db: &Connection,
    place: Place,
    id: OperationId,
    record: &Record,
    (answer, response): (&Response, i64),
) -> rusqlite::Result<()> {
    insert_response(db, place.class, response, (id, record), answer)?;
    let columns = Columns::new(&id, record, response);
    let mut statement = db.prepare_cached(&Statements::of(place.class).settle)?;
    let changed = statement.execute(params![
        place.row,
        columns.crc(&record.route),
        columns.at,
        columns.token,
        columns.count,
        columns.settled_by,
        columns.response,
    ])?;
    one_row(changed)
}

/// Writes another completed record to the row of one, with its response. The bytes of the old ones are overwritten.
pub(crate) fn replace(
    db: &Connection,
    place: Place,
    id: OperationId,
    record: &Record,
    (route, response): (i64, i64),
) -> rusqlite::Result<()> {
    db.pragma_update(None, "secure_delete", true)?;
    delete_response(db, place)?;
    one_row(db.prepare_cached(&Statements::of(place.class).delete)?.execute([place.row])?)?;
    db.pragma_update(None, "secure_delete", false)?;
    if let Some(answer) = record.response() {
        insert_response(db, place.class, response, (id, record), answer)?;
    }
    append(db, place, id, record, (route, response))
}

fn insert_response(
    db: &Connection,
    class: u8,
    row: i64,
    (id, record): (OperationId, &Record),
    answer: &Response,
) -> rusqlite::Result<()> {
    let head = codec::encode_head(answer);
    let body = answer.body.stored().map(|body| &body[..]);
    let crc = response_crc(id.as_bytes(), record.token.as_bytes(), &head, body.unwrap_or_default());
    let mut statement = db.prepare_cached(&Statements::of(class).insert_response)?;
    statement.execute(params![row, crc, head, body])?;
    Ok(())
}

/// Marks the row of a deleted record gone. The row stays until the sweep, so that row numbers have no gap.
pub(crate) fn mark_gone(
    db: &Connection,
    place: Place,
    id: OperationId,
    responded: bool,
) -> rusqlite::Result<()> {
    if responded {
        delete_response(db, place)?;
    }
    let [a, b, c, d] = id_crc(id.as_bytes(), GONE);
    let crc = [a, b, c, d, 0, 0, 0, 0];
    one_row(
        db.prepare_cached(&Statements::of(place.class).mark_gone)?
            .execute(params![place.row, crc])?,
    )
}

/// Deletes the response of a row that has one.
pub(crate) fn delete_response(db: &Connection, place: Place) -> rusqlite::Result<()> {
    db.prepare_cached(&Statements::of(place.class).delete_response)?.execute([place.row])?;
    Ok(())
}

/// What was found in a row.
pub(crate) enum Found {
    /// No such row, or its record was deleted.
    Nothing,
    Record(OperationId, Box<Record>),
    Damaged(Damage),
}

/// A row that cannot be decoded or whose checksum is wrong.
#[derive(Debug, thiserror::Error)]
#[error("row {row} of record_{class} is damaged: {what}")]
pub(crate) struct Damage {
    class: u8,
    row: i64,
    what: &'static str,
}

impl Damage {
    pub(crate) fn new(place: Place, what: &'static str) -> Self {
        Self { class: place.class, row: place.row, what }
    }
}

impl From<Damage> for StoreError {
    fn from(damage: Damage) -> Self {
        Self::Unreadable(Box::new(damage))
    }
}

/// Reads a row with its response, and checks both.
pub(crate) fn read(db: &Connection, place: Place, routes: &Routes) -> rusqlite::Result<Found> {
    let mut statement = db.prepare_cached(&Statements::of(place.class).read)?;
    let mut rows = statement.query([place.row])?;
    match rows.next() {
        Ok(None) => Ok(Found::Nothing),
        Ok(Some(row)) => Ok(decode(row, place, routes)),
        Err(error) if is_damage(&error) => {
            Ok(Found::Damaged(Damage::new(place, "its page does not read")))
        }
        Err(error) => Err(error),
    }
}

/// Decodes a row with its response.
pub(crate) fn decode(row: &Row<'_>, place: Place, routes: &Routes) -> Found {
    match decode_checked(row, routes) {
        Ok(None) => Found::Nothing,
        Ok(Some((id, record))) => Found::Record(id, Box::new(record)),
        Err(what) => Found::Damaged(Damage::new(place, what)),
    }
}

fn decode_checked(
    row: &Row<'_>,
    routes: &Routes,
) -> Result<Option<(OperationId, Record)>, &'static str> {
    let (columns, route) = checked(row, routes)?;
    let at = StoreTime::from_ms(columns.at);
    let state = match columns.state {
        GONE => return Ok(None),
        RUNNING => State::Running { lease_until: at },
        UNKNOWN => State::Unknown { since: at },
        RELEASED => State::Released { expires_at: at },
        _ => State::Completed {
            expires_at: at,
            settled_by: columns.settled_by().map_err(bad_value)?,
            response: Arc::new(decode_response(row, &columns)?),
        },
    };
    let record = columns.record(route, state).map_err(bad_value)?;
    Ok(Some((OperationId::from_bytes(*columns.id), record)))
}

/// The columns of a row and the text of its route, if the checksum is right.
pub(crate) fn checked<'a>(
    row: &'a Row<'_>,
    routes: &Routes,
) -> Result<(Columns<'a>, Arc<str>), &'static str> {
    let (columns, route, crc) = Columns::read(row).map_err(bad_value)?;
    let route = routes.text(route).ok_or("its route is missing")?;
    let right = match columns.state {
        GONE => crc.starts_with(&id_crc(columns.id, GONE)),
        _ => crc == columns.crc(&route),
    };
    if right { Ok((columns, route)) } else { Err("its checksum is wrong") }
}

/// The id and the state of a row, if the checksum over these two is right: they can then be trusted although the rest
/// cannot be decoded. They stand in three columns from `first` on: id, state, checksum.
pub(crate) fn trusted_id(row: &Row<'_>, first: usize) -> Option<(OperationId, i64)> {
    let id: [u8; 16] = row.get_ref(first).ok()?.as_blob().ok()?.try_into().ok()?;
    let state = row.get_ref(first + 1).ok()?.as_i64().ok()?;
    let crc = row.get_ref(first + 2).ok()?.as_blob().ok()?;
    crc.starts_with(&id_crc(&id, state)).then(|| (OperationId::from_bytes(id), state))
}

fn decode_response(row: &Row<'_>, columns: &Columns<'_>) -> Result<Response, &'static str> {
    let blob = |column: usize| row.get_ref(COLUMN_COUNT + column).ok()?.as_blob_or_null().ok();
    let missing = "its response is missing";
    let (crc, head) = (blob(0).flatten().ok_or(missing)?, blob(1).flatten().ok_or(missing)?);
    let body = blob(2).ok_or(missing)?.unwrap_or_default();
    if crc != response_crc(columns.id, columns.token, head, body) {
        return Err("the checksum of its response is wrong");
    }
    codec::decode_head(head, Bytes::copy_from_slice(body))
        .map_err(|_| "the head of its response does not read")
}

/// Covers the id and the token too, so that the response of another record or attempt does not match.
fn response_crc(id: &[u8; 16], token: &[u8; 16], head: &[u8], body: &[u8]) -> [u8; 4] {
    let mut crc = crc32c::crc32c(id);
    crc = crc32c::crc32c_append(crc, token);
    crc = crc32c::crc32c_append(crc, &(head.len() as u64).to_le_bytes());
    crc = crc32c::crc32c_append(crc, head);
    crc32c::crc32c_append(crc, body).to_le_bytes()
}

/// Whether the error means a damaged page and not a failing disk.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

pub(crate) fn unavailable(error: impl Into<BoxError>) -> StoreError {
    StoreError::Unavailable(error.into())
}

/// 0 is stored as NULL.
fn nonzero(value: i64) -> Option<i64> {
    (value != 0).then_some(value)
}

fn bad_value(_: BadValue) -> &'static str {
    "a column has a value that is never written"
}

/// An update must change one row: the index says that the row is there.
fn one_row(changed: usize) -> rusqlite::Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}
