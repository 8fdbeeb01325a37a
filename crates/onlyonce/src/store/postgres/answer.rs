//! What a statement answered: the store's time, and what it says of each id.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::columns::record;
use super::sql_error::{SqlError, moved, unclear};
use super::value::{Moment, Uuid};
use crate::clock::StoreTime;
use crate::record::{Record, Revision, Token};
use crate::scope::OperationId;
use crate::store::StoreError;

/// An answer. Members of a batch that are not in it lost their guard or their race.
pub(super) struct Answer {
    pub(super) now: StoreTime,
    pub(super) found: HashMap<OperationId, Found>,
}

/// What an answer says of an id.
pub(super) enum Found {
    /// The statement wrote the record; it tells the revision, unless it inserted the record.
    Written(Option<Revision>),
    /// The record was there.
    There(Box<Result<Record, StoreError>>),
}

impl Answer {
    pub(super) fn read(rows: &[Row]) -> Result<Self, SqlError> {
        let (mut now, mut found) = (None, HashMap::with_capacity(rows.len()));
        for row in rows {
            let Moment(at) = row.try_get("now").map_err(unclear)?;
            now = Some(at);
            if let Some(Uuid(id)) = row.try_get("id").map_err(unclear)? {
                found.insert(OperationId::from_bytes(id), read_found(row)?);
            }
        }
        Ok(Self { now: now.ok_or_else(moved)?, found })
    }
}

fn read_found(row: &Row) -> Result<Found, SqlError> {
    if !row.try_get::<_, bool>("written").map_err(unclear)? {
        return Ok(Found::There(Box::new(record(row))));
    }
    let token: Option<Uuid> = row.try_get("token").map_err(unclear)?;
    let count: Option<i64> = row.try_get("count").map_err(unclear)?;
    let revision = token.zip(count).map(|(token, count)| Revision {
        token: Token::from_bytes(token.0),
        count: count.cast_unsigned(),
    });
    Ok(Found::Written(revision))
}
