//! What a statement answered: the store's time, and what it says of each id.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::columns::record;
use super::sql_error::{SqlError, unclear};
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
                found.insert(OperationId::from_bytes(id), Found::There(Box::new(record(row))));
            }
            read_written(row, &mut found).map_err(unclear)?;
        }
        Ok(Self { now: now.ok_or(SqlError::Moved)?, found })
    }
}

fn read_written(
    row: &Row,
    found: &mut HashMap<OperationId, Found>,
) -> Result<(), tokio_postgres::Error> {
    let ids: Option<Vec<Uuid>> = row.try_get("ids")?;
    let tokens: Option<Vec<Uuid>> = row.try_get("tokens")?;
    let counts: Option<Vec<i64>> = row.try_get("counts")?;
    let revisions = tokens.unwrap_or_default().into_iter().zip(counts.unwrap_or_default());
    let mut revisions = revisions.map(|(token, count)| Revision {
        token: Token::from_bytes(token.0),
        count: count.cast_unsigned(),
    });
    for id in ids.unwrap_or_default() {
        found.insert(OperationId::from_bytes(id.0), Found::Written(revisions.next()));
    }
    Ok(())
}
